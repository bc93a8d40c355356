"""How HCS speaks to Kubernetes: typed resources, a connection, informers, and the few writes its programs make.

Built on lightkube. Objects are decoded into small structs that declare only what we read.
"""
