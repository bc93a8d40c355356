"""The unified resource abstraction: what every card is worth, and how well that is known.

Cards of all vendors become one kind of value with one unit of compute, the ACU: 1 % of an A100-SXM4-80GB in a workload
class. Everything here is computed from tables that come with the package.
"""
