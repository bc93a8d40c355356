/* What other files may ask of NVML. */
#ifndef HCS_INTERCEPTOR_NVML_H
#define HCS_INTERCEPTOR_NVML_H

#include <stdbool.h>
#include <stdint.h>

/* Free memory of a card of the quota file, from the driver, without a context; loads NVML at its first call. False where
 * there is no NVML or it does not know the card. */
bool hcs_nvml_free_memory(int card, uint64_t *bytes);

#endif
