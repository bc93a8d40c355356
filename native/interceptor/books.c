/* The books of this process, see books.h. */
#include "books.h"

#include <stdatomic.h>

bool hcs_book(uint32_t kind, uint64_t key, uint64_t bytes, const struct hcs_place *place)
{
    struct hcs_local *local = hcs_local();
    struct hcs_entry entry = {
        .key = key, .bytes = bytes, .owner = place->owner, .card = (uint32_t)place->card, .kind = kind};
    return local != NULL && hcs_addresses_put(&local->addresses, &entry);
}

bool hcs_settle(bool ok, uint32_t kind, uint64_t key, uint64_t bytes, const struct hcs_place *place)
{
    bool booked = ok && hcs_book(kind, key, bytes, place);
    if (!booked)
        hcs_uncharge(place->card, bytes);
    return booked || !ok;
}

bool hcs_unbook(uint32_t kind, uint64_t key, struct hcs_entry *entry)
{
    struct hcs_local *local = hcs_local();
    return local != NULL && hcs_addresses_take(&local->addresses, kind, key, entry);
}

void hcs_settle_free(bool freed, bool known, const struct hcs_entry *entry)
{
    if (!known)
        return;
    if (freed)
        hcs_uncharge((int)entry->card, entry->bytes);
    else
        hcs_addresses_put(&hcs_local()->addresses, entry);
}

void hcs_forget_owned(uint32_t runtime, uint64_t owner)
{
    struct hcs_local *local = hcs_local();
    uint64_t sums[HCS_MAX_LISTED] = {0};
    if (local == NULL || owner == 0)
        return;
    hcs_addresses_take_owned(&local->addresses, runtime, owner, sums, HCS_MAX_LISTED);
    for (int card = 0; card < HCS_MAX_LISTED; card++)
        hcs_uncharge(card, sums[card]);
}

/* ---- physical memory --------------------------------------------------------------------------------------------- */

bool hcs_physical_settle(bool ok, uint32_t runtime, uint64_t handle, uint64_t bytes, int card)
{
    struct hcs_local *local = hcs_local();
    bool booked = false;
    if (ok && local != NULL) {
        uint64_t id = atomic_fetch_add(&local->next_physical, 1) + 1;
        struct hcs_entry memory = {.key = id,
                                   .bytes = bytes,
                                   .card = (uint32_t)card,
                                   .kind = HCS_KIND(runtime, HCS_KIND_PHYSICAL),
                                   .refs = 1};
        struct hcs_entry name = {
            .key = handle, .owner = id, .card = (uint32_t)card, .kind = HCS_KIND(runtime, HCS_KIND_HANDLE)};
        booked = hcs_addresses_put(&local->addresses, &memory);
        if (booked && !hcs_addresses_put(&local->addresses, &name)) {
            hcs_addresses_take(&local->addresses, memory.kind, id, &memory);
            booked = false;
        }
    }
    if (!booked)
        hcs_uncharge(card, bytes);
    return booked || !ok;
}

/* Takes references and mappings from the memory, and its charge with the last of them. */
static void drop(uint32_t runtime, uint64_t id, int refs, int maps)
{
    struct hcs_entry memory;
    if (hcs_addresses_count(&hcs_local()->addresses, HCS_KIND(runtime, HCS_KIND_PHYSICAL), id, -refs, -maps, true,
                            &memory) &&
        memory.refs == 0 && memory.maps == 0)
        hcs_uncharge((int)memory.card, memory.bytes);
}

void hcs_physical_begin_release(uint32_t runtime, uint64_t handle, struct hcs_releasing *releasing)
{
    struct hcs_local *local = hcs_local();
    struct hcs_entry memory;
    releasing->last = false;
    releasing->known = local != NULL && hcs_addresses_get(&local->addresses, HCS_KIND(runtime, HCS_KIND_HANDLE), handle,
                                                          &releasing->handle);
    if (!releasing->known)
        return;
    releasing->known = hcs_addresses_get(&local->addresses, HCS_KIND(runtime, HCS_KIND_PHYSICAL),
                                         releasing->handle.owner, &memory);
    if (releasing->known && memory.refs == 1)
        releasing->last = hcs_addresses_take(&local->addresses, HCS_KIND(runtime, HCS_KIND_HANDLE), handle,
                                             &releasing->handle);
}

void hcs_physical_end_release(uint32_t runtime, bool released, const struct hcs_releasing *releasing)
{
    if (!releasing->known)
        return;
    if (released)
        drop(runtime, releasing->handle.owner, 1, 0);
    else if (releasing->last)
        hcs_addresses_put(&hcs_local()->addresses, &releasing->handle);
}

uint64_t hcs_physical_begin_map(uint32_t runtime, uint64_t handle)
{
    struct hcs_local *local = hcs_local();
    struct hcs_entry name, memory;
    if (local == NULL || !hcs_addresses_get(&local->addresses, HCS_KIND(runtime, HCS_KIND_HANDLE), handle, &name) ||
        !hcs_addresses_count(&local->addresses, HCS_KIND(runtime, HCS_KIND_PHYSICAL), name.owner, 0, 1, false, &memory))
        return 0;
    return name.owner;
}

void hcs_physical_end_map(uint32_t runtime, bool mapped, uint64_t id, uint64_t address, uint64_t bytes)
{
    if (id == 0)
        return;
    struct hcs_entry entry = {
        .key = address, .bytes = bytes, .owner = id, .kind = HCS_KIND(runtime, HCS_KIND_MAPPING)};
    if (mapped && hcs_addresses_put(&hcs_local()->addresses, &entry))
        return;
    if (!mapped) /* where the books are full the memory stays charged: rather too much than too little */
        drop(runtime, id, 0, 1);
}

void hcs_physical_unmapped(uint32_t runtime, uint64_t address, uint64_t bytes)
{
    struct hcs_local *local = hcs_local();
    struct hcs_entry mapping;
    uint64_t at = address;
    /* A range may hold many whole mappings, never a part of one. Those of a peer's memory are not in the books: step
     * over them by the smallest granule there is. */
    while (local != NULL && (at == address || at - address < bytes)) {
        if (hcs_addresses_take(&local->addresses, HCS_KIND(runtime, HCS_KIND_MAPPING), at, &mapping)) {
            drop(runtime, mapping.owner, 0, 1);
            at += mapping.bytes;
        } else {
            at += HCS_MAPPING_STEP;
        }
        if (at < address || bytes == 0)
            return;
    }
}

void hcs_physical_retained(uint32_t runtime, uint64_t handle, uint64_t address)
{
    struct hcs_local *local = hcs_local();
    struct hcs_entry entry, memory;
    if (local == NULL)
        return;
    if (hcs_addresses_get(&local->addresses, HCS_KIND(runtime, HCS_KIND_HANDLE), handle, &entry)) {
        hcs_addresses_count(&local->addresses, HCS_KIND(runtime, HCS_KIND_PHYSICAL), entry.owner, 1, 0, false, &memory);
        return;
    }
    /* Its handles were all released, and it is still mapped: this is a new name for it. */
    if (!hcs_addresses_find_covering(&local->addresses, HCS_KIND(runtime, HCS_KIND_MAPPING), address, &entry))
        return;
    struct hcs_entry name = {
        .key = handle, .owner = entry.owner, .card = entry.card, .kind = HCS_KIND(runtime, HCS_KIND_HANDLE)};
    if (hcs_addresses_put(&local->addresses, &name))
        hcs_addresses_count(&local->addresses, HCS_KIND(runtime, HCS_KIND_PHYSICAL), entry.owner, 1, 0, false, &memory);
}
