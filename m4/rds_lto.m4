dnl SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
dnl RDS_LTO: --disable-lto.  A message passes through a dozen files of the engine; as one piece they cost 5 % less.
dnl LTO_CFLAGS goes to compiling the engine and preload/, LTO_LDFLAGS to linking the library.  The objects are whole ones all the same, and
dnl everything else links these, with LTO_NONE: or each of the unit tests would compile the engine once more.  (-Wc: libtool drops a bare
dnl -fno-lto where it links a shared object, as librdspreload-fault.so is.)  The library itself is linked without LTO_NONE: GCC obeys
dnl -fno-lto even if -flto=auto comes behind it; scripts/check-symbols looks at the result.
dnl Only where the compiler can do both (GCC); never with sanitizers, whose reports name functions.
AC_DEFUN([RDS_LTO], [
AC_ARG_ENABLE([lto], [AS_HELP_STRING([--disable-lto], [do not optimize the library as one piece])], [], [enable_lto=check])
LTO_CFLAGS=
LTO_LDFLAGS=
LTO_NONE=
AS_IF([test "$enable_lto" != no && test -z "$rds_sanitizers"],
      [AC_MSG_CHECKING([whether $CC optimizes while linking])
       rds_save_CFLAGS=$CFLAGS
       CFLAGS="$CFLAGS -Werror -flto=auto -ffat-lto-objects"
       AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])], [rds_lto=yes], [rds_lto=no])
       CFLAGS=$rds_save_CFLAGS
       AC_MSG_RESULT([$rds_lto])
       AS_IF([test $rds_lto = yes],
	     [LTO_CFLAGS="-flto=auto -ffat-lto-objects"
	      LTO_LDFLAGS="-flto=auto"
	      LTO_NONE="-Wc,-fno-lto"],
	     [test "$enable_lto" = yes], [AC_MSG_ERROR([--enable-lto: $CC cannot])])])
AC_SUBST([LTO_CFLAGS])
AC_SUBST([LTO_LDFLAGS])
AC_SUBST([LTO_NONE])
])
