/* Feeds the quota file's parser with anything. What must hold for every input: no memory outside it is touched (the
 * sanitizers see to that), and what is accepted is within the bounds that the rest of the library relies on.
 *
 *     quota_fuzz SEED COUNT FILE...    mutates the files COUNT times, one random choice after another
 *     quota_fuzz FILE...               reads each file once; AFL runs it like this, with @@
 *
 * With clang's -fsanitize=fuzzer, main is libFuzzer's.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../common/account.h"
#include "../interceptor/quota.h"

static void must(int holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "the parser accepted what it must not: %s\n", what);
    abort();
}

static void check(const struct hcs_quota *quota)
{
    must(quota->card_count >= 1 && quota->card_count <= HCS_QUOTA_MAX_CARDS, "number of cards");
    must(memchr(quota->ledger, '\0', sizeof quota->ledger) != NULL && quota->ledger[0] != '.' &&
             strchr(quota->ledger, '/') == NULL,
         "name of the ledger");
    for (uint32_t index = 0; index < quota->card_count; index++) {
        const struct hcs_quota_card *card = &quota->cards[index];
        must(card->quota_bytes >= 1 && card->quota_bytes <= HCS_BYTES_MASK, "quota");
        must(card->context_bytes <= HCS_BYTES_MASK, "context");
        must(memchr(card->uuid, '\0', sizeof card->uuid) != NULL && card->uuid[0] != '\0', "UUID");
        must(memchr(card->vendor, '\0', sizeof card->vendor) != NULL, "vendor");
        must(memchr(card->bus_id, '\0', sizeof card->bus_id) != NULL, "bus id");
        must(card->physical_id >= -1 && card->physical_id <= INT32_MAX, "physical id");
        for (uint32_t other = 0; other < index; other++)
            must(strcmp(card->uuid, quota->cards[other].uuid) != 0, "one UUID twice");
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A copy of exactly this size, so that reading one byte too far is noticed. */
    char *text = malloc(size ? size : 1);
    struct hcs_quota *quota = malloc(sizeof *quota);
    memcpy(text, data, size);
    const char *problem = hcs_quota_parse(text, size, quota);
    if (problem == NULL)
        check(quota);
    else
        must(quota->fault_line >= 1 && quota->fault_line <= size + 1, "line of the fault");
    free(text);
    free(quota);
    return problem != NULL;
}

#ifndef HCS_LIBFUZZER
enum { MOST = HCS_QUOTA_MAX_BYTES + 64 };

static uint64_t state;

static uint32_t any(uint32_t below)
{
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (uint32_t)(state >> 24) % below;
}

/* Changes the text in one of the ways in which files go wrong. Returns its new length. */
static size_t mutate(uint8_t *text, size_t length)
{
    static const char *const pieces[] = {"-",   " ", "\n", "0", "18446744073709551616", "17592186044416", "card ", "end ",
                                         "GPU", "/", "..", "\r\n", "ledger ledger\n",   "hcs-quota 1\n", "\x80"};
    size_t at = length ? any((uint32_t)length) : 0;
    const char *piece = pieces[any(sizeof pieces / sizeof *pieces)];
    size_t added = strlen(piece);
    switch (any(6)) {
    case 0: /* cut off */
        return at;
    case 1: /* one byte */
        if (length)
            text[at] = (uint8_t)any(256);
        return length;
    case 2: /* one bit */
        if (length)
            text[at] ^= (uint8_t)(1U << any(8));
        return length;
    case 3: /* take some out */
        added = length ? any((uint32_t)(length - at)) : 0;
        memmove(text + at, text + at + added, length - at - added);
        return length - added;
    case 4: /* put something in */
        if (length + added > MOST)
            return length;
        memmove(text + at + added, text + at, length - at);
        memcpy(text + at, piece, added);
        return length + added;
    default: /* repeat a part */
        added = any((uint32_t)(length - at) + 1);
        if (length + added > MOST)
            return length;
        memmove(text + at + added, text + at, length - at);
        return length + added;
    }
}

static size_t read_file(const char *path, uint8_t *text)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    size_t length = fread(text, 1, MOST, file);
    fclose(file);
    return length;
}

int main(int count, char **arguments)
{
    static uint8_t seed[MOST], text[MOST];
    char *end = NULL;
    long rounds = count > 3 ? strtol(arguments[2], &end, 10) : 0;
    unsigned long accepted = 0, refused = 0;
    if (rounds <= 0 || *end != '\0') {
        for (int index = 1; index < count; index++)
            LLVMFuzzerTestOneInput(text, read_file(arguments[index], text)) ? refused++ : accepted++;
    } else {
        state = strtoull(arguments[1], NULL, 10) * 2654435761U + 88172645463325252U;
        for (long round = 0; round < rounds; round++) {
            size_t length = read_file(arguments[3 + any((uint32_t)count - 3)], seed);
            memcpy(text, seed, length);
            for (uint32_t changes = any(4); changes > 0; changes--)
                length = mutate(text, length);
            LLVMFuzzerTestOneInput(text, length) ? refused++ : accepted++;
        }
    }
    printf("accepted %lu, refused %lu\n", accepted, refused);
}
#endif
