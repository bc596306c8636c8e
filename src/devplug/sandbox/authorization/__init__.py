"""Who may do what: users and their tokens, RBAC, the Node authorizer, and the status of claims.

Pure: objects and moments are given in. The server asks an `Authorizer` once for each request.
"""
