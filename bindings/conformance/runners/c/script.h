/* One line of a script: its words, the tensors in them, and the results that its operation prints. README.md has the
 * format. Everything that is taken here lives until the script ends. */
#ifndef KVCACHE_CONFORMANCE_SCRIPT_H_
#define KVCACHE_CONFORMANCE_SCRIPT_H_

#include <kvcache.h>
#include <stdbool.h>

enum print { AS_HEX, AS_HASH };

void *take(size_t bytes); /* zeroed, 256-byte aligned */
void release_all(void);   /* at the end of a script: of tensors and names too */

/* Splits a line in place: NULL if it is not an operation, else the operation's name. */
const char *read_line(char *line);
const char *text(const char *key); /* NULL if absent, as all below */
int64_t integer(const char *key, int64_t absent);
double number(const char *key);
bool flag(const char *key);
int64_t *integers(const char *key, int64_t *count);
int32_t *integers_32(const char *key, int64_t *count);
uint8_t *hex_bytes(const char *key, int64_t *count); /* written as hexadecimal digits */
float *floats(const char *key, int64_t *count);
double *doubles(const char *key, int64_t *count);
int32_t choice(const char *key, const char *const *names); /* index of the value in names; 0 if absent */
DLDataType dtype(const char *key);

DLTensor *tensor(const char *key);
const DLTensor *const *tensors(const char *key, int64_t *count);
void keep(const char *name, const DLTensor *value); /* for $name */
const DLTensor *named_tensor(const char *form);     /* "$name" */
DLTensor *copy_tensor(const DLTensor *of);          /* compact */

void result_integers(const char *name, int64_t count, const int64_t *values);
void result_integers_32(const char *name, int64_t count, const int32_t *values);
void result_integer(const char *name, int64_t value);
void result_text(const char *name, const char *value);
void result_digits(const char *name, uint64_t value); /* 16 hex digits */
void result_tensor(const char *name, const DLTensor *value, enum print print);
const char *results(void); /* of this line */

/* The runner is at a loss: the line's answer is FAILED. Does not return. */
void fail(const char *why, const char *value);
extern void (*fail_handler)(const char *why, const char *value);

#endif
