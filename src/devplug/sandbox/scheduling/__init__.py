"""The sandbox's scheduler: which node a pod goes to, and in whose words it is told that there is none.

Everything here is pure: no clock, no input or output, no logging. It follows Kubernetes 1.36; files are named
after pkg/scheduler there. Two things differ: every node is scored, where the real one stops when it has found
enough (percentageOfNodesToScore), and nothing is ever preempted.
"""
