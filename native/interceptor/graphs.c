/* Memory that graphs own, see graphs.h. */
#include "graphs.h"

#include <sched.h>
#include <stdatomic.h>

#include "books.h"

static struct hcs_driver_state *state_of(const struct hcs_graph_driver *driver)
{
    struct hcs_local *local = hcs_local();
    return local != NULL ? &local->drivers[driver->runtime] : NULL;
}

static uint64_t marked(const struct hcs_graph_driver *driver)
{
    struct hcs_driver_state *state = state_of(driver);
    return state != NULL ? atomic_load_explicit(&state->graph_ordinals, memory_order_relaxed) : 0;
}

void hcs_graphs_mark(const struct hcs_graph_driver *driver, int ordinal)
{
    struct hcs_driver_state *state = state_of(driver);
    if (state != NULL && ordinal >= 0 && ordinal < HCS_MAX_ORDINALS)
        atomic_fetch_or(&state->graph_ordinals, UINT64_C(1) << ordinal);
}

bool hcs_graphs_own_memory(const struct hcs_graph_driver *driver)
{
    return marked(driver) != 0;
}

void hcs_graphs_refresh(const struct hcs_graph_driver *driver)
{
    struct hcs_driver_state *state = state_of(driver);
    uint64_t ordinals = marked(driver);
    if (ordinals == 0)
        return;
    uint32_t open = 0;
    while (!atomic_compare_exchange_weak(&state->measuring, &open, 1)) {
        open = 0;
        sched_yield();
    }
    for (int ordinal = 0; ordinal < HCS_MAX_ORDINALS; ordinal++) {
        uint64_t reserved;
        if (!(ordinals >> ordinal & 1) || !driver->reserved(ordinal, &reserved))
            continue;
        uint64_t charged = state->graph_charged[ordinal];
        state->graph_charged[ordinal] = reserved;
        if (reserved > charged)
            hcs_charge_measured(driver->card_of(ordinal), reserved - charged);
        else
            hcs_uncharge(driver->card_of(ordinal), charged - reserved);
    }
    atomic_store(&state->measuring, 0);
}

bool hcs_graphs_refused(const struct hcs_graph_driver *driver)
{
    uint64_t ordinals = marked(driver);
    for (int ordinal = 0; ordinal < HCS_MAX_ORDINALS && ordinals >> ordinal != 0; ordinal++)
        if ((ordinals >> ordinal & 1) && hcs_refuses_measured(driver->card_of(ordinal)))
            return true;
    return false;
}

static uint32_t kind_of(const struct hcs_graph_driver *driver)
{
    return HCS_KIND(driver->runtime, HCS_KIND_GRAPH);
}

void hcs_graph_made(const struct hcs_graph_driver *driver, uint64_t executable)
{
    hcs_book(kind_of(driver), executable, 0, &(struct hcs_place){0});
}

struct hcs_graph_run hcs_graph_begin_run(const struct hcs_graph_driver *driver, uint64_t executable)
{
    struct hcs_local *local = hcs_local();
    struct hcs_entry entry = {.refs = 0};
    struct hcs_graph_run run;
    run.known = local != NULL && hcs_addresses_get(&local->addresses, kind_of(driver), executable, &entry);
    run.first = !run.known || entry.refs == 0;
    run.allowed = !run.first || !hcs_graphs_refused(driver);
    return run;
}

void hcs_graph_end_run(const struct hcs_graph_driver *driver, uint64_t executable, const struct hcs_graph_run *run,
                       bool ran)
{
    struct hcs_entry entry;
    if (ran && run->known && run->first)
        hcs_addresses_count(&hcs_local()->addresses, kind_of(driver), executable, 1, 0, false, &entry);
    hcs_graphs_refresh(driver);
}

bool hcs_graph_begin_destroy(const struct hcs_graph_driver *driver, uint64_t executable, struct hcs_entry *entry)
{
    return hcs_unbook(kind_of(driver), executable, entry);
}

void hcs_graph_end_destroy(const struct hcs_graph_driver *driver, bool destroyed, bool known,
                           const struct hcs_entry *entry)
{
    hcs_settle_free(destroyed, known, entry);
    hcs_graphs_refresh(driver);
}
