"""Device plugins for the kubelet, protocol v1beta1: the part every resource needs, whatever it counts.

Write a class with the methods of :class:`hcs.deviceplugin.resource.Resource`, give it to
:class:`hcs.deviceplugin.plugin.DevicePlugin`, publish its units and run it. Who holds what is in
:mod:`hcs.deviceplugin.podresources`.
"""
