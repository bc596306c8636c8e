"""The deployment on a cluster: a DaemonSet and all around it, as manifests, chart and kustomize base. Pure.

The chart is written by hand in Helm's language, and the objects in Python; a test compares what both make
of the same values.
"""
