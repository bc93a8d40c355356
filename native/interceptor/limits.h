/* The quota file in force, for those who look cards up in it. */
#ifndef HCS_LIMITS_H
#define HCS_LIMITS_H

#include "quota.h"

/* NULL where everything is refused or everything passes. */
const struct hcs_quota *hcs_quota_in_force(void);

#endif
