"""How much of a mixed cluster each policy can hand out: the fragmentation experiment on the openb trace."""
