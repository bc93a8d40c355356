/* Reads a quota file from standard input as the interceptor does. Prints "ok" and what was understood, or the reason. */
#include <stdio.h>

#include "../../../native/interceptor/quota.h"

int main(void)
{
    static char text[1 << 20];
    static struct hcs_quota quota;
    size_t length = fread(text, 1, sizeof text, stdin);
    const char *problem = hcs_quota_parse(text, length, &quota);
    if (problem != NULL) {
        printf("%s\n", problem);
        return 1;
    }
    printf("ok %llu %s\n", (unsigned long long)quota.counter, quota.ledger);
    for (unsigned card = 0; card < quota.card_count; card++)
        printf("%s %s %llu %llu %s %lld\n", quota.cards[card].vendor, quota.cards[card].uuid,
               (unsigned long long)quota.cards[card].quota_bytes, (unsigned long long)quota.cards[card].context_bytes,
               quota.cards[card].bus_id[0] != '\0' ? quota.cards[card].bus_id : "-",
               (long long)quota.cards[card].physical_id);
    return 0;
}
