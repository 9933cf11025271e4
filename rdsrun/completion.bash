# SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
# Completion of rdsrun(1) for bash: options and their values, then the program's own completion.
# scripts/check-manual compares the list with `rdsrun --help` at each build.

_rdsrun_options='--log --registry-dir --spin --check --hold --check-peer --from --ping --count --node --json --watch --metrics
	--info --library --options --help --version'

# The words of an option that takes a value.  Bash splits --log=debug into three words.
_rdsrun_takes_value()
{
	case $1 in
	-[lrs] | --log | --registry-dir | --spin | --check | --from | --count | --metrics) return 0 ;;
	esac
	return 1
}

# Prints the index of the first operand before the word that is completed; 0: there is none yet.
_rdsrun_operand()
{
	local i
	for ((i = 1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-*)
			if [[ ${COMP_WORDS[i + 1]-} = "=" ]]; then
				((i += 2))
			elif _rdsrun_takes_value "${COMP_WORDS[i]}"; then
				((i++))
			fi
			;;
		*)
			echo "$i"
			return
			;;
		esac
	done
	echo 0
}

_rdsrun_value()
{
	case $1 in
	-l | --log) mapfile -t COMPREPLY < <(compgen -W 'error warn info debug' -- "$2") ;;
	-r | --registry-dir) mapfile -t COMPREPLY < <(compgen -d -- "$2") ;;
	--check) mapfile -t COMPREPLY < <(compgen -c -- "$2") ;;
	--metrics) mapfile -t COMPREPLY < <(compgen -f -- "$2") ;;
	esac
}

_rdsrun()
{
	local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} operand
	COMPREPLY=()
	operand=$(_rdsrun_operand)
	if ((operand)); then
		if [[ " ${COMP_WORDS[*]:1:operand-1} " = *" --"@(hold|check-peer|ping|node|info*)" "* ]]; then
			mapfile -t COMPREPLY < <(compgen -A hostname -- "$cur")
		elif declare -F _command_offset >/dev/null; then
			_command_offset "$operand"
		fi
		return
	fi
	if [[ $cur = "=" ]]; then
		_rdsrun_value "$before" ''
	elif [[ $before = "=" ]]; then
		_rdsrun_value "${COMP_WORDS[COMP_CWORD - 2]}" "$cur"
	elif _rdsrun_takes_value "$before"; then
		_rdsrun_value "$before" "$cur"
	elif [[ $cur = -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$_rdsrun_options" -- "$cur")
	elif [[ " ${COMP_WORDS[*]} " = *" --"@(hold|check-peer|ping)" "* ]]; then
		mapfile -t COMPREPLY < <(compgen -A hostname -- "$cur")
	else
		mapfile -t COMPREPLY < <(compgen -c -- "$cur")
	fi
}

complete -o default -F _rdsrun rdsrun
