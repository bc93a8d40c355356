"""Reading what accelerator vendors' command-line tools print. Pure: text in, :class:`hcs.vendors.parsing.report.Report`
out.

The promise is strictness before completeness. A figure is reported where its header or key and its unit say what it is;
whatever is masked, cut off, of an unknown unit or under an unknown heading is null. No reader looks at column offsets,
and none raises on any text.
"""
