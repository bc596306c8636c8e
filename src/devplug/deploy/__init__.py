"""What is deployed on a cluster: a DaemonSet and all around it, as manifests, chart and kustomize base.

One set of trees (`objects`) with places for values (`values`) makes all three, so they cannot drift.
"""
