/* Pools, see pools.h. Everything about one pool happens under its lock, the driver's answer included, so that two
 * threads never book the same growth twice. */
#include "pools.h"

#include <sched.h>
#include <stdatomic.h>

#include "books.h"

static void lock(struct hcs_pool *pool)
{
    uint32_t open = 0;
    while (!atomic_compare_exchange_weak(&pool->lock, &open, 1)) {
        open = 0;
        sched_yield();
    }
}

static void unlock(struct hcs_pool *pool)
{
    atomic_store(&pool->lock, 0);
}

struct hcs_pool *hcs_pool_known(uint32_t runtime, uint64_t handle)
{
    struct hcs_local *local = hcs_local();
    for (int index = 0; local != NULL && index < HCS_MAX_POOLS; index++) {
        struct hcs_pool *pool = &local->pools[index];
        if (atomic_load_explicit(&pool->handle, memory_order_acquire) == handle && pool->runtime == runtime &&
            !pool->destroyed)
            return pool;
        if (pool->driver == NULL)
            return NULL; /* places are taken in order, and keep their driver: nobody was here yet */
    }
    return NULL;
}

struct hcs_pool *hcs_pool_of(uint32_t runtime, uint64_t handle, int card, const struct hcs_pool_driver *driver)
{
    struct hcs_pool *known = hcs_pool_known(runtime, handle);
    struct hcs_local *local = hcs_local();
    if (known != NULL || local == NULL || handle == 0)
        return known;
    uint32_t open = 0;
    while (!atomic_compare_exchange_weak(&local->claim_lock, &open, 1)) {
        open = 0;
        sched_yield();
    }
    known = hcs_pool_known(runtime, handle); /* another thread may have been first */
    for (int index = 0; known == NULL && index < HCS_MAX_POOLS; index++) {
        struct hcs_pool *pool = &local->pools[index];
        if (atomic_load(&pool->handle) != 0)
            continue;
        pool->card = card;
        pool->runtime = runtime;
        pool->destroyed = false;
        pool->driver = driver;
        pool->charged = pool->ahead = pool->outstanding = pool->calls = 0;
        atomic_store(&pool->live, 0);
        atomic_store_explicit(&pool->handle, handle, memory_order_release);
        known = pool;
    }
    atomic_store(&local->claim_lock, 0);
    return known;
}

/* Sets the ledger to what the pool has reserved. Growth is paid from what was reserved ahead, then from the quota; with
 * `whatever` also beyond it. False where the quota has no room for the growth. The pool is locked. */
static bool adjust(struct hcs_pool *pool, bool whatever)
{
    uint64_t reserved;
    if (pool->destroyed || !pool->driver->reserved(atomic_load(&pool->handle), &reserved))
        return true;
    if (reserved <= pool->charged) {
        hcs_uncharge(pool->card, pool->charged - reserved);
        pool->charged = reserved;
        return true;
    }
    uint64_t growth = reserved - pool->charged;
    uint64_t paid = growth < pool->ahead ? growth : pool->ahead;
    pool->ahead -= paid;
    pool->charged += paid;
    growth -= paid;
    if (growth == 0)
        return true;
    if (whatever)
        hcs_charge_measured(pool->card, growth);
    else if (!hcs_try_charge(pool->card, growth))
        return false;
    pool->charged += growth;
    return true;
}

/* What a request may make the pool grow by. */
static uint64_t step(const struct hcs_pool *pool, uint64_t bytes)
{
    uint64_t granule = pool->driver->granule;
    return bytes > UINT64_MAX - granule ? UINT64_MAX : (bytes + granule - 1) / granule * granule;
}

static void enter(struct hcs_pool *pool, uint64_t reserved)
{
    lock(pool);
    pool->calls++;
    pool->ahead += reserved;
    pool->outstanding += reserved;
    unlock(pool);
}

enum hcs_pool_answer hcs_pool_begin(struct hcs_pool *pool, uint64_t bytes)
{
    uint64_t wanted = step(pool, bytes);
    if (!hcs_charge(pool->card, wanted)) {
        /* What the pool keeps for nobody may be what is missing. */
        pool->driver->trim(atomic_load(&pool->handle));
        hcs_pools_refresh();
        if (!hcs_try_charge(pool->card, wanted)) {
            /* Memory that was freed in stream order, or lies beside used pieces, cannot be given back; but it can be
             * given out again. */
            uint64_t reserved;
            bool room = pool->driver->reserved(atomic_load(&pool->handle), &reserved) && reserved >= bytes &&
                        reserved - bytes >= atomic_load(&pool->live);
            if (room)
                enter(pool, 0);
            return room ? HCS_POOL_REUSE : HCS_POOL_REFUSE;
        }
    }
    enter(pool, wanted);
    return HCS_POOL_RESERVED;
}

bool hcs_pool_end(struct hcs_pool *pool, enum hcs_pool_answer began, uint64_t bytes)
{
    lock(pool);
    bool fits = adjust(pool, false);
    pool->calls -= fits; /* else it is under way until the pool has given back */
    if (began == HCS_POOL_RESERVED) {
        pool->outstanding -= step(pool, bytes);
        if (pool->ahead > pool->outstanding) {
            hcs_uncharge(pool->card, pool->ahead - pool->outstanding);
            pool->ahead = pool->outstanding;
        }
    }
    unlock(pool);
    return fits;
}

void hcs_pool_give_up(struct hcs_pool *pool)
{
    pool->driver->trim(atomic_load(&pool->handle));
    lock(pool);
    adjust(pool, false);
    pool->calls--;
    unlock(pool);
}

void hcs_pool_shrink(struct hcs_pool *pool)
{
    pool->driver->trim(atomic_load(&pool->handle));
    hcs_pools_refresh(); /* the wait before it may have emptied others as well */
}

bool hcs_pool_book(struct hcs_pool *pool, uint64_t pointer, uint64_t bytes)
{
    struct hcs_local *local = hcs_local();
    struct hcs_entry entry = {.key = pointer,
                              .bytes = bytes,
                              .owner = (uint64_t)(pool - local->pools),
                              .card = (uint32_t)pool->card,
                              .kind = HCS_KIND(pool->runtime, HCS_KIND_POOLED)};
    atomic_fetch_add(&pool->live, bytes);
    if (hcs_addresses_put(&local->addresses, &entry))
        return true;
    atomic_fetch_sub(&pool->live, bytes);
    return false;
}

bool hcs_pool_unbook(uint32_t runtime, uint64_t pointer, struct hcs_entry *entry)
{
    return hcs_unbook(HCS_KIND(runtime, HCS_KIND_POOLED), pointer, entry);
}

/* A destroyed pool holds what its pointers hold. The pool is locked. */
static void adjust_destroyed(struct hcs_pool *pool)
{
    uint64_t live = atomic_load(&pool->live);
    if (pool->charged > live) {
        hcs_uncharge(pool->card, pool->charged - live);
        pool->charged = live;
    }
    if (live == 0)
        atomic_store(&pool->handle, 0);
}

void hcs_pool_freed(bool freed, const struct hcs_entry *entry)
{
    struct hcs_local *local = hcs_local();
    struct hcs_pool *pool = &local->pools[entry->owner];
    if (!freed) {
        hcs_addresses_put(&local->addresses, entry);
        return;
    }
    lock(pool);
    atomic_fetch_sub(&pool->live, entry->bytes);
    if (pool->destroyed)
        adjust_destroyed(pool);
    unlock(pool);
    atomic_store(&local->pools_dirty, true);
}

void hcs_pool_begin_destroy(struct hcs_pool *pool)
{
    lock(pool);
    pool->destroyed = true;
    unlock(pool);
}

void hcs_pool_end_destroy(struct hcs_pool *pool, bool destroyed)
{
    lock(pool);
    pool->destroyed = destroyed;
    if (destroyed)
        adjust_destroyed(pool);
    unlock(pool);
}

/* True when some pool still has more than its pointers hold: it may shrink later, when another stream is waited for. */
static bool refresh(struct hcs_local *local)
{
    bool keeps = false;
    for (int index = 0; index < HCS_MAX_POOLS && local->pools[index].driver != NULL; index++) {
        struct hcs_pool *pool = &local->pools[index];
        if (atomic_load(&pool->handle) == 0 || pool->destroyed)
            continue;
        lock(pool);
        /* While calls are under way growth is theirs: who cannot pay for it gives it back. */
        adjust(pool, pool->calls == 0);
        keeps |= pool->charged > atomic_load(&pool->live);
        unlock(pool);
    }
    return keeps;
}

void hcs_pools_refresh(void)
{
    struct hcs_local *local = hcs_local();
    if (local != NULL)
        refresh(local);
}

void hcs_pools_refresh_if_dirty(void)
{
    struct hcs_local *local = hcs_local();
    if (local == NULL || !atomic_load_explicit(&local->pools_dirty, memory_order_relaxed))
        return;
    atomic_store(&local->pools_dirty, false);
    if (refresh(local))
        atomic_store(&local->pools_dirty, true);
}
