/* Visible devices as the vendors document them; see visible.h. */
#include "visible.h"

#include <stdbool.h>
#include <string.h>

static uint32_t everything(uint32_t count, uint32_t order[HCS_MAX_CARDS])
{
    for (uint32_t card = 0; card < count; card++)
        order[card] = card;
    return count;
}

/* Reads digits; UINT32_MAX when there are none or too many. */
static uint32_t number(const char **at)
{
    uint32_t value = 0;
    const char *start = *at;
    while (**at >= '0' && **at <= '9' && value < HCS_MAX_CARDS) {
        value = value * 10 + (uint32_t)(**at - '0');
        (*at)++;
    }
    return *at == start ? UINT32_MAX : value;
}

static uint32_t card_of_uuid(const char *text, size_t length, const struct hcs_card *cards, uint32_t count)
{
    uint32_t match = UINT32_MAX;
    if (length < 5 || strncmp(text, "GPU-", 4) != 0)
        return UINT32_MAX;
    for (uint32_t card = 0; card < count; card++) {
        if (strncmp(cards[card].file->uuid, text, length) != 0)
            continue;
        if (match != UINT32_MAX)
            return UINT32_MAX; /* two cards begin like this */
        match = card;
    }
    return match;
}

uint32_t hcs_visible_cuda(const char *value, const struct hcs_card *cards, uint32_t count,
                          uint32_t order[HCS_MAX_CARDS])
{
    if (value == NULL)
        return everything(count, order);
    uint32_t seen = 0;
    while (*value != '\0') {
        while (*value == ' ')
            value++;
        const char *end = value + strcspn(value, ", ");
        const char *at = value;
        uint32_t card = number(&at);
        if (card == UINT32_MAX)
            card = card_of_uuid(value, (size_t)(end - value), cards, count);
        else if (at != end)
            card = UINT32_MAX;
        if (card >= count)
            break;
        for (uint32_t earlier = 0; earlier < seen; earlier++)
            if (order[earlier] == card)
                return 0;
        order[seen++] = card;
        value = end;
        while (*value == ' ')
            value++;
        if (*value != ',')
            break;
        value++;
    }
    return seen;
}

uint32_t hcs_visible_ascend(const char *value, uint32_t count, uint32_t order[HCS_MAX_CARDS])
{
    if (value == NULL)
        return everything(count, order);
    uint32_t seen = 0;
    for (;;) {
        uint32_t card = number(&value);
        if (card >= count || (seen > 0 && card <= order[seen - 1]))
            break;
        order[seen++] = card;
        if (*value != ',')
            break;
        value++;
    }
    return seen;
}
