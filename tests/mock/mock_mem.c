/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * mock_mem.c - protection domains and memory regions of the mock, and the one way in which memory
 * is touched: through them.
 */
#include "tests/mock/mock_impl.h"

struct mock_mrs mock_mrs = TAILQ_HEAD_INITIALIZER(mock_mrs);
static uint32_t last_key = 0x1000;

static struct ibv_pd *alloc_pd(struct ibv_context *ctx)
{
	MOCK_LOCK;
	struct mock_pd *pd;

	MOCK_FAILS_NULL(ibv_alloc_pd);
	if (mock_dev_of(ctx)->gone)
		return mock_null(EIO);
	pd = calloc(1, sizeof(*pd));
	pd->pd.context = ctx;
	mock_ctx_used(ctx, 1);
	mock_made(MOCK_PD);
	return &pd->pd;
}

static int dealloc_pd(struct ibv_pd *ibpd)
{
	MOCK_LOCK;
	struct mock_pd *pd = (struct mock_pd *)ibpd;

	MOCK_FAILS_NUMBER(ibv_dealloc_pd);
	if (pd->users)
		return EBUSY;
	mock_ctx_used(ibpd->context, -1);
	mock_unmade(MOCK_PD);
	free(pd);
	return 0;
}

static struct {
	bool hang;
	unsigned n;
	pthread_cond_t go;
} slow = {.go = PTHREAD_COND_INITIALIZER};

void mock_reg_hang(void)
{
	MOCK_LOCK;

	slow.hang = true;
}

void mock_reg_go(void)
{
	pthread_mutex_lock(&mock_mutex);
	slow.hang = false;
	pthread_cond_broadcast(&slow.go);
	mock_await_none(&slow.n);
	pthread_mutex_unlock(&mock_mutex);
}

unsigned mock_regs_hanging(void)
{
	MOCK_LOCK;

	return slow.n;
}

/* The kernel pins page by page. */
static void wait_for_pages(void)
{
	if (!slow.hang)
		return;
	slow.n++;
	while (slow.hang)
		pthread_cond_wait(&slow.go, &mock_mutex);
	slow.n--;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	MOCK_LOCK;
	struct mock_dev *dev = mock_dev_of(pd->context);
	struct mock_mr *mr;

	wait_for_pages();
	MOCK_FAILS_NULL(ibv_reg_mr);
	if (dev->gone)
		return mock_null(EIO);
	if (!len || len > dev->attr.max_mr_size)
		return mock_null(EINVAL);
	if (len > dev->memlock - dev->registered || mock_count(MOCK_MR) >= (unsigned)dev->attr.max_mr)
		return mock_null(ENOMEM);
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
		return mock_null(EINVAL);
	mr = calloc(1, sizeof(*mr));
	mr->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = len};
	mr->mr.lkey = mr->mr.rkey = last_key += 0x100;
	mr->access = access;
	dev->registered += len;
	((struct mock_pd *)pd)->users++;
	TAILQ_INSERT_TAIL(&mock_mrs, mr, link);
	mock_made(MOCK_MR);
	return &mr->mr;
}

static bool uses(const struct ibv_sge *sge, int nsge, uint32_t lkey)
{
	int i;

	for (i = 0; i < nsge; i++)
		if (sge[i].lkey == lkey)
			return true;
	return false;
}

/* Does a device still have a work request that needs it? */
static void check_unused(uint32_t lkey)
{
	struct mock_qp *qp;
	struct mock_srq *srq;
	struct mock_send *s;
	struct mock_recv *r;

	TAILQ_FOREACH(qp, &mock_qps, link)
	TAILQ_FOREACH(s, &qp->sq, link)
	if (!s->data && uses(s->sge, s->nsge, lkey))
		mock_fault("memory unregistered that a posted send needs");
	TAILQ_FOREACH(srq, &mock_srqs, link)
	TAILQ_FOREACH(r, &srq->recvs, link)
	if (srq->users && uses(r->sge, r->nsge, lkey))
		mock_fault("memory unregistered that a posted receive needs");
}

static int dereg_mr(struct ibv_mr *ibmr)
{
	MOCK_LOCK;
	struct mock_mr *mr = (struct mock_mr *)ibmr;

	MOCK_FAILS_NUMBER(ibv_dereg_mr);
	check_unused(ibmr->lkey);
	mock_dev_of(ibmr->context)->registered -= ibmr->length;
	((struct mock_pd *)ibmr->pd)->users--;
	TAILQ_REMOVE(&mock_mrs, mr, link);
	mock_unmade(MOCK_MR);
	free(mr);
	return 0;
}

const char *mock_mem_wrong(struct ibv_pd *pd, const struct ibv_sge *sge, int access)
{
	struct mock_mr *mr;
	uint64_t at;

	TAILQ_FOREACH(mr, &mock_mrs, link)
	if (mr->mr.lkey == sge->lkey)
		break;
	if (!mr)
		return "no such key";
	if (mr->mr.pd != pd)
		return "another protection domain";
	if ((mr->access & access) != access)
		return "not allowed";
	at = sge->addr - (uintptr_t)mr->mr.addr;
	if (sge->addr < (uintptr_t)mr->mr.addr || at > mr->mr.length || sge->length > mr->mr.length - at)
		return "outside of the region";
	return NULL;
}

bool mock_mem_check(struct ibv_pd *pd, const struct ibv_sge *sge, int nsge, int access, const char *what)
{
	const char *wrong;
	int i;

	for (i = 0; i < nsge; i++) {
		wrong = sge[i].length ? mock_mem_wrong(pd, &sge[i], access) : NULL;
		if (wrong) {
			mock_fault("%s: part %d, 0x%llx + %u, key 0x%x: %s", what, i, (unsigned long long)sge[i].addr,
				   sge[i].length, sge[i].lkey, wrong);
			return false;
		}
	}
	return true;
}

size_t mock_mem_length(const struct ibv_sge *sge, int nsge)
{
	size_t sum = 0;
	int i;

	for (i = 0; i < nsge; i++)
		sum += sge[i].length;
	return sum;
}

void mock_mem_gather(unsigned char *to, const struct ibv_sge *sge, int nsge)
{
	int i;

	for (i = 0; i < nsge; to += sge[i++].length)
		if (sge[i].length)
			memcpy(to, (void *)(uintptr_t)sge[i].addr, sge[i].length);
}

void mock_mem_scatter(const struct ibv_sge *sge, int nsge, const unsigned char *from, size_t len)
{
	size_t n;
	int i;

	for (i = 0; i < nsge && len; i++) {
		n = sge[i].length < len ? sge[i].length : len;
		memcpy((void *)(uintptr_t)sge[i].addr, from, n);
		from += n;
		len -= n;
	}
}

void mock_mem_install(void)
{
	vb.ibv_alloc_pd = alloc_pd;
	vb.ibv_dealloc_pd = dealloc_pd;
	vb.ibv_reg_mr = reg_mr;
	vb.ibv_dereg_mr = dereg_mr;
}
