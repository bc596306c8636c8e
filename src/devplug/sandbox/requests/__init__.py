"""What a request to the API server asks for: its path, options and body, read and checked. Pure.

What is wrong with one is a refusal in the API's words; what is done with a right one is the server's.
"""
