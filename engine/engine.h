/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * engine.h - what most files of the engine see.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/helper/helper.h"
#include "engine/node/registry.h"
#include "engine/node/stats.h"
#include "engine/progress/progress.h"
#include "engine/rds.h"
#include "engine/socket/waiter.h"
#include "engine/sys/compiler.h"
#include "engine/sys/fence.h"
#include "engine/sys/lock_order.h"
#include "engine/sys/log.h"
#include "engine/sys/options.h"
#include "engine/sys/os.h"
#include "engine/sys/process.h"
#include "engine/transport/transport.h"
#include "engine/wire/addr.h"

#endif
