"""spec + catalogue + inventory + incumbent -> Plan | NoFit. The only door to the sizing engine."""
