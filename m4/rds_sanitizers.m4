dnl SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
dnl RDS_SANITIZERS: --enable-sanitizers=address|undefined|thread, one or a comma separated list.
dnl SAN_CFLAGS goes to compiling and linking, SAN_LDFLAGS to linking.  SAN_PRELOAD are the runtimes (colon separated) that must stand in front of
dnl librdspreload.so in LD_PRELOAD, because the programs under test are not built with the sanitizer; rdsrun puts them there.
AC_DEFUN([RDS_SANITIZERS], [
AC_ARG_ENABLE([sanitizers],
	[AS_HELP_STRING([--enable-sanitizers=LIST], [build with address, undefined and/or thread (comma separated)])],
	[], [enable_sanitizers=no])
rds_sanitizers=
SAN_CFLAGS=
SAN_LDFLAGS=
SAN_PRELOAD=
AS_CASE([$enable_sanitizers], [no|''], [], [yes], [rds_sanitizers=address,undefined], [rds_sanitizers=$enable_sanitizers])
for rds_san in `AS_ECHO(["$rds_sanitizers"]) | tr ',' ' '`; do
	AS_CASE([$rds_san],
		[address], [rds_lib=libasan.so], [undefined], [rds_lib=libubsan.so], [thread], [rds_lib=libtsan.so],
		[AC_MSG_ERROR([--enable-sanitizers: $rds_san is none of address, undefined, thread])])
	AC_MSG_CHECKING([for the $rds_san sanitizer])
	rds_save_CFLAGS=$CFLAGS
	CFLAGS="$CFLAGS -fsanitize=$rds_san"
	AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [AC_MSG_RESULT([yes])],
		       [AC_MSG_ERROR([$CC cannot link with -fsanitize=$rds_san])])
	CFLAGS=$rds_save_CFLAGS
	rds_path=`$CC -print-file-name=$rds_lib`
	AS_CASE([$rds_path], [/*], [SAN_PRELOAD="${SAN_PRELOAD:+$SAN_PRELOAD:}`readlink -f $rds_path`"])
done
AS_IF([test -n "$rds_sanitizers"],
      [SAN_CFLAGS="-fsanitize=$rds_sanitizers -fno-omit-frame-pointer"
       AS_CASE([,$rds_sanitizers,], [*,undefined,*], [SAN_CFLAGS="$SAN_CFLAGS -fno-sanitize-recover=undefined"])])
dnl clang puts its runtime into programs only; our library, which may leave nothing undefined, needs the shared one, and then
dnl the tests must not bring another.  It does not say in gcc's words that it is there.
rds_path=`$CC -print-file-name=libclang_rt.asan-$(uname -m).so`
AS_CASE([,$rds_sanitizers,:$rds_path], [*,address,*:/*],
	[SAN_PRELOAD=`readlink -f $rds_path`
	 SAN_CFLAGS="$SAN_CFLAGS -D__SANITIZE_ADDRESS__"
	 SAN_LDFLAGS="-Wc,-shared-libasan -Wl,-rpath,`AS_DIRNAME([$SAN_PRELOAD])`"])
AC_SUBST([SAN_CFLAGS])
AC_SUBST([SAN_LDFLAGS])
AC_SUBST([SAN_PRELOAD])
AC_SUBST([rds_sanitizers])
AM_CONDITIONAL([SANITIZERS], [test -n "$rds_sanitizers"])
])
