"""The controllers: the scheduler's loop and the parts of the controller manager.

Each is a class with a `run` that lasts until it is cancelled, over one registry. They take changes as hints
and look at what there is; nobody calls them. The larger decisions are pure: those about DaemonSets in
`daemonsetplan`, and the scheduler's in `devplug.sandbox.scheduler`.
"""
