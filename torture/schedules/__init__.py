"""Both ends of the socket on a loop without a machine: every delay is drawn, and a seed plays it again.

Real are the kubelet's device manager with its registration, and a plugin's inventory and lifecycle. In memory
are sockets, calls, files and their events. There is no daemon, and so nobody who asks PodResources.
"""
