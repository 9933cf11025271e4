dnl SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
dnl RDS_WARNINGS: the warnings that this code is kept clean of, in WARN_CFLAGS; --enable-werror makes them errors.
AC_DEFUN([RDS_WARNINGS], [
AC_ARG_ENABLE([werror], [AS_HELP_STRING([--enable-werror], [warnings are errors])], [], [enable_werror=no])
WARN_CFLAGS=
for rds_flag in -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla -Wformat=2 \
		-Wundef -Wwrite-strings; do
	AC_MSG_CHECKING([whether $CC takes $rds_flag])
	rds_save_CFLAGS=$CFLAGS
	CFLAGS="$CFLAGS -Werror $rds_flag"
	AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
			  [AC_MSG_RESULT([yes]); WARN_CFLAGS="$WARN_CFLAGS $rds_flag"],
			  [AC_MSG_RESULT([no])])
	CFLAGS=$rds_save_CFLAGS
done
AS_IF([test "$enable_werror" = yes], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
AC_SUBST([WARN_CFLAGS])
])
