"""What keeps the sandbox's objects as they should be: the scheduler and the controller manager's parts.

Each is a class with a `run` that lasts until it is cancelled, over one registry. They take changes as hints
and look at what there is; nobody calls them. What they decide is pure, in `rules`, `daemons` and
`devplug.sandbox.scheduling`.
"""
