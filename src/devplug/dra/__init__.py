"""Dynamic Resource Allocation as the scheduler of Kubernetes 1.36 decides it: values and rules. Pure.

From below: `objects` reads the API's objects into values, `pools` gathers what a node can see, `allocator`
searches devices for claims, `scheduling` decides for a pod. `selectors` evaluates CEL and is the only module
that needs the extra `dra`; the allocator takes it as a value. Facts are numbered as in the reference that the
tests name: D74 is the order of devices.
"""
