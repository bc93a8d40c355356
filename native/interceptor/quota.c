/* Reads the quota file. Strict on purpose: a file that is not exactly as written by the node agent is refused whole,
 * for a guess here would be a guess about somebody's limit. */
#include "quota.h"

#include <string.h>

#include "../common/account.h"

struct cursor {
    const char *at;
    const char *end;
};

static bool literal(struct cursor *cursor, const char *text)
{
    size_t length = strlen(text);
    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, text, length) != 0)
        return false;
    cursor->at += length;
    return true;
}

/* A word of printable characters, copied with its terminating zero. */
static bool word(struct cursor *cursor, char *out, size_t size)
{
    size_t length = 0;
    while (cursor->at < cursor->end && *cursor->at > ' ' && *cursor->at < 0x7f) {
        if (length + 1 >= size)
            return false;
        out[length++] = *cursor->at++;
    }
    out[length] = '\0';
    return length > 0;
}

/* Decimal digits without sign or leading zero. */
static bool number(struct cursor *cursor, uint64_t limit, uint64_t *out)
{
    const char *start = cursor->at;
    uint64_t value = 0;
    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') {
        uint64_t digit = (uint64_t)(*cursor->at - '0');
        if (value > (limit - digit) / 10)
            return false;
        value = value * 10 + digit;
        cursor->at++;
    }
    *out = value;
    return cursor->at > start && (*start != '0' || cursor->at == start + 1);
}

static bool is_name_letter(char letter)
{
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '.' || letter == '_' || letter == '-';
}

static bool is_plain_name(const char *name)
{
    if (name[0] == '.')
        return false;
    for (; *name; name++)
        if (!is_name_letter(*name))
            return false;
    return true;
}

/* Lower-case words as the page lists them: a letter, then letters, digits and dashes. */
static bool is_vendor(const char *word)
{
    if (word[0] < 'a' || word[0] > 'z')
        return false;
    for (; *word; word++)
        if (!((*word >= 'a' && *word <= 'z') || (*word >= '0' && *word <= '9') || *word == '-'))
            return false;
    return true;
}

static const char *card_line(struct cursor *cursor, struct hcs_quota_card *card)
{
    if (!word(cursor, card->vendor, sizeof card->vendor) || !is_vendor(card->vendor) || !literal(cursor, " "))
        return "a card line has no readable vendor";
    if (!word(cursor, card->uuid, sizeof card->uuid) || !literal(cursor, " "))
        return "a card line has no readable UUID";
    if (!number(cursor, HCS_BYTES_MASK, &card->quota_bytes) || !literal(cursor, " ") || card->quota_bytes == 0)
        return "a quota is not a number of bytes from 1 to 2^44 - 1";
    if (!number(cursor, HCS_BYTES_MASK, &card->context_bytes) || !literal(cursor, " "))
        return "a context overhead is not a number of bytes";
    if (literal(cursor, "- "))
        card->bus_id[0] = '\0';
    else if (!word(cursor, card->bus_id, sizeof card->bus_id) || !literal(cursor, " "))
        return "a PCI bus id is not readable";
    uint64_t physical_id;
    if (literal(cursor, "-\n"))
        card->physical_id = -1;
    else if (number(cursor, INT32_MAX, &physical_id) && literal(cursor, "\n"))
        card->physical_id = (int64_t)physical_id;
    else
        return "a physical id is not a number";
    return NULL;
}

static const char *parse(struct cursor *cursor, struct hcs_quota *quota)
{
    if (!literal(cursor, "hcs-quota 1\n"))
        return "the first line is not \"hcs-quota 1\"";
    if (!literal(cursor, "counter ") || !number(cursor, INT64_MAX, &quota->counter) || !literal(cursor, "\n"))
        return "the second line is not \"counter NUMBER\"";
    if (!literal(cursor, "ledger ") || !word(cursor, quota->ledger, sizeof quota->ledger) ||
        !literal(cursor, "\n") || !is_plain_name(quota->ledger))
        return "the third line is not \"ledger FILENAME\"";
    while (literal(cursor, "card ")) {
        if (quota->card_count == HCS_QUOTA_MAX_CARDS)
            return "more than 32 cards";
        struct hcs_quota_card *card = &quota->cards[quota->card_count];
        const char *problem = card_line(cursor, card);
        if (problem != NULL)
            return problem;
        for (uint32_t earlier = 0; earlier < quota->card_count; earlier++)
            if (strcmp(quota->cards[earlier].uuid, card->uuid) == 0)
                return "a UUID stands twice";
        quota->card_count++;
    }
    uint64_t promised;
    if (!literal(cursor, "end ") || !number(cursor, HCS_QUOTA_MAX_CARDS, &promised) || !literal(cursor, "\n"))
        return "a line is neither a card nor the end";
    if (promised != quota->card_count || cursor->at != cursor->end)
        return "the last line does not count the cards";
    return quota->card_count == 0 ? "there is no card" : NULL;
}

const char *hcs_quota_parse(const char *text, size_t length, struct hcs_quota *quota)
{
    struct cursor cursor = {.at = text, .end = text + length};
    memset(quota, 0, sizeof *quota);
    const char *problem = parse(&cursor, quota);
    if (problem == NULL)
        return NULL;
    /* A line is read to its end before what it says is judged. */
    const char *last = cursor.at > text && cursor.at[-1] == '\n' ? cursor.at - 1 : cursor.at;
    quota->fault_line = 1;
    for (const char *at = text; at < last; at++)
        quota->fault_line += *at == '\n';
    return problem;
}
