/* Which line of the quota file a card is: by the identity that the driver itself tells, never by an ordinal. */
#include <string.h>

#include "interceptor.h"
#include "limits.h"

static bool is_vendor(const struct hcs_quota_card *card, const char *vendor)
{
    return strcmp(card->vendor, vendor) == 0;
}

static char lower(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

static bool same_letters(const char *left, const char *right)
{
    for (; *left && lower(*left) == lower(*right); left++, right++) {
    }
    return *left == '\0' && *right == '\0';
}

/* The part of the file's UUID after one of the prefixes; NULL where none stands before it. */
static const char *without_prefix(const char *uuid, const char *prefixes)
{
    while (*prefixes != '\0') {
        size_t length = strcspn(prefixes, " ");
        if (strncmp(uuid, prefixes, length) == 0)
            return uuid + length;
        prefixes += length;
        while (*prefixes == ' ')
            prefixes++;
    }
    return NULL;
}

int hcs_card_of_uuid(const char *vendor, const char *prefixes, const unsigned char uuid[16])
{
    static const char digits[] = "0123456789abcdef";
    char text[37];
    size_t at = 0;
    for (int byte = 0; byte < 16; byte++) {
        if (byte == 4 || byte == 6 || byte == 8 || byte == 10)
            text[at++] = '-';
        text[at++] = digits[uuid[byte] >> 4];
        text[at++] = digits[uuid[byte] & 15];
    }
    text[at] = '\0';
    const struct hcs_quota *quota = hcs_quota_in_force();
    for (uint32_t card = 0; quota != NULL && card < quota->card_count; card++) {
        const char *known = is_vendor(&quota->cards[card], vendor)
                                ? without_prefix(quota->cards[card].uuid, prefixes)
                                : NULL;
        if (known == NULL && is_vendor(&quota->cards[card], vendor))
            known = quota->cards[card].uuid;
        if (known != NULL && same_letters(known, text))
            return (int)card;
    }
    return HCS_CARD_UNLISTED;
}

int hcs_card_of_uuid_text(const char *vendor, const char *uuid)
{
    const struct hcs_quota *quota = hcs_quota_in_force();
    for (uint32_t card = 0; quota != NULL && card < quota->card_count; card++)
        if (is_vendor(&quota->cards[card], vendor) && same_letters(quota->cards[card].uuid, uuid))
            return (int)card;
    return HCS_CARD_UNLISTED;
}

/* PCI addresses with a domain of four or of eight digits are the same address. */
static bool same_bus_id(const char *left, const char *right)
{
    while (*left == '0')
        left++;
    while (*right == '0')
        right++;
    return same_letters(left, right);
}

int hcs_card_of_bus_id(const char *vendor, const char *bus_id)
{
    const struct hcs_quota *quota = hcs_quota_in_force();
    for (uint32_t card = 0; quota != NULL && card < quota->card_count; card++)
        if (is_vendor(&quota->cards[card], vendor) && quota->cards[card].bus_id[0] != '\0' &&
            same_bus_id(quota->cards[card].bus_id, bus_id))
            return (int)card;
    return HCS_CARD_UNLISTED;
}

int hcs_card_of_physical_id(const char *vendor, int64_t physical_id)
{
    const struct hcs_quota *quota = hcs_quota_in_force();
    for (uint32_t card = 0; quota != NULL && card < quota->card_count; card++)
        if (is_vendor(&quota->cards[card], vendor) && physical_id >= 0 &&
            quota->cards[card].physical_id == physical_id)
            return (int)card;
    return HCS_CARD_UNLISTED;
}
