# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# log-lines.awk FILE...: "level: text" of each line that C sources log and of each entry of the page
# librdspreload-log.7, to be compared (check-manual). What varies is `...'. "?" begins what it cannot
# read: a format that is no literal, an entry that is not in order.

# Literals and macros up to the end of the first argument.
function text_of(s, file, out, name) {
	for (;;) {
		sub(/^[ \t]+/, "", s)
		if (match(s, /^"([^"\\]|\\.)*"/)) {
			out = out substr(s, 2, RLENGTH - 2)
			s = substr(s, RLENGTH + 1)
			continue
		}
		name = match(s, /^[A-Z_]+/) ? substr(s, 1, RLENGTH) : ""
		if (!(name in macro))
			break
		s = ((file, name) in macro ? macro[file, name] : macro[name]) substr(s, RLENGTH + 1)
	}
	if (s !~ /^[,)]/)
		return "? " s
	gsub(/%[-+#0-9.*]*(hh|h|ll|l|z|j|t)?[a-zA-Z]/, "...", out)
	gsub(/\\"/, "\"", out)
	return out
}

# ---- the page: "It Xo", the text, "Xc", "Pq level" ----

FILENAME ~ /\.[1-8]$/ {
	if (/^\.S[hs]/)
		last = ""
	if (ends) {
		gsub(/\\&/, "", entry)
		gsub(/\\\(ga/, "`", entry)
		gsub(/\\\(aq/, "'", entry)
		gsub(/\\-/, "-", entry)
		gsub(/<[^<>]*>/, "...", entry)
		sub(/^\.Pq /, "")
		print (tolower(entry) < last ? "? not in order: " : "") $0 ": " entry
		last = tolower(entry)
	}
	ends = /^\.Xc/
	if (!ends)
		entry = /^\.It Xo/ ? "" : entry (entry == "" ? "" : " ") $0
	next
}

# ---- the sources ----

/^#[ \t]*define [A-Z_]+ +"[^"]/ {
	name = $2
	sub(/^#[ \t]*define [A-Z_]+ +/, "")
	macro[FILENAME, name] = $0
	if (!(name in macro))
		macro[name] = $0
	next
}
/^#/ || FILENAME ~ /sys\/log\.h$/ { next }
/(rds_(error|warn|warn_once|info|log)|line_warn)\(/ { on = 1 }
on { call[n] = call[n] $0 " "; from[n] = FILENAME }
on && /;[ \t]*$/ { on = 0; n++ }

BEGIN { n = 0 }
END {
	for (i = 0; i < n; i++)
		while (match(call[i], /(rds_(error|warn|warn_once|info|log)\(|line_warn\(fd, )/)) {
			level = substr(call[i], RSTART, RLENGTH)
			level = level ~ /error/ ? "error" : level ~ /info/ ? "info" : "warning"
			call[i] = substr(call[i], RSTART + RLENGTH)
			print level ": " text_of(call[i], from[i])
		}
}
