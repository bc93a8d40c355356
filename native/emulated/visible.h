/* Which of the opened cards the program sees, and in which order: the vendors' own variables. */
#ifndef HCS_VISIBLE_H
#define HCS_VISIBLE_H

#include <stdint.h>

#include "card.h"

/* CUDA_VISIBLE_DEVICES: indices or UUIDs (a unique beginning is enough) separated by commas. Unset: all. The list ends
 * before the first entry that is not valid; an entry that stands twice leaves no card at all. Returns the number of
 * cards written to order[]. */
uint32_t hcs_visible_cuda(const char *value, const struct hcs_card *cards, uint32_t count,
                          uint32_t order[HCS_MAX_CARDS]);

/* ASCEND_RT_VISIBLE_DEVICES: logical ids in ascending order; parsing stops at the first foreign character or id. */
uint32_t hcs_visible_ascend(const char *value, uint32_t count, uint32_t order[HCS_MAX_CARDS]);

#endif
