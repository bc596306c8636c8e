"""The deployment on a cluster: a DaemonSet and all around it, as manifests, chart and kustomize base.

One set of objects with places for values makes all three, so they cannot drift.
"""
