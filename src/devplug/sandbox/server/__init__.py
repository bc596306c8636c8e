"""The Kubernetes API of the sandbox over HTTP: requests become acts upon the registry, and answers.

What is asked and what is answered are values of pure modules; `app`, `exchange` and `serving` are the shell.
"""
