#include "script.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS 64

static struct word {
  const char *key, *value;
} words[MAX_WORDS];
static int num_words;

static struct block {
  struct block *next;
} *blocks;
static struct named {
  struct named *next;
  const char *name;
  const DLTensor *value;
} *names;

static char *result_buffer;
static size_t result_length, result_capacity;

void (*fail_handler)(const char *why, const char *value);

void fail(const char *why, const char *value) {
  fail_handler(why, value);
  abort();
}

void *take(size_t bytes) {
  const size_t header = 256, whole = (header + bytes + 255) / 256 * 256;
  struct block *block = aligned_alloc(256, whole);
  if (!block) fail("out of memory", "");
  memset(block, 0, whole);
  block->next = blocks;
  blocks = block;
  return (char *)block + header;
}

void release_all(void) {
  while (blocks) {
    struct block *next = blocks->next;
    free(blocks);
    blocks = next;
  }
  names = NULL;
}

/* ---- words ---- */

const char *read_line(char *line) {
  char *rest = line, *word;
  line[strcspn(line, "\r\n")] = '\0';
  num_words = 0;
  result_length = 0;
  if (line[0] == '\0' || line[0] == '#' || line[0] == '=') return NULL;
  word = strtok_r(line, " ", &rest);
  if (word[0] == '?') word++;
  for (char *next; (next = strtok_r(NULL, " ", &rest)) != NULL;) {
    char *equals = strchr(next, '=');
    if (!equals || num_words == MAX_WORDS) fail("no key=value, or too many", next);
    *equals = '\0';
    words[num_words].key = next;
    words[num_words++].value = equals + 1;
  }
  return word;
}

const char *text(const char *key) {
  for (int i = 0; i < num_words; i++)
    if (strcmp(words[i].key, key) == 0) return words[i].value;
  return NULL;
}

int64_t integer(const char *key, int64_t absent) { return text(key) ? strtoll(text(key), NULL, 10) : absent; }
double number(const char *key) { return text(key) ? strtod(text(key), NULL) : 0.0; }
bool flag(const char *key) { return integer(key, 0) != 0; }

static int64_t count_items(const char *list, char between) {
  int64_t count = *list != '\0';
  for (; *list; list++) count += *list == between;
  return count;
}

double *doubles(const char *key, int64_t *count) {
  const char *list = text(key);
  *count = list ? count_items(list, ',') : 0;
  if (!list) return NULL;
  double *values = take((size_t)*count * sizeof(*values));
  for (int64_t i = 0; i < *count; i++, list++) values[i] = strtod(list, (char **)&list);
  return values;
}

float *floats(const char *key, int64_t *count) {
  const double *values = doubles(key, count);
  float *result = values ? take((size_t)*count * sizeof(*result)) : NULL;
  for (int64_t i = 0; i < *count; i++) result[i] = (float)values[i];
  return result;
}

int64_t *integers(const char *key, int64_t *count) {
  const char *list = text(key);
  *count = list ? count_items(list, ',') : 0;
  if (!list) return NULL;
  int64_t *values = take((size_t)*count * sizeof(*values));
  for (int64_t i = 0; i < *count; i++, list++) values[i] = strtoll(list, (char **)&list, 10);
  return values;
}

int32_t *integers_32(const char *key, int64_t *count) {
  const int64_t *values = integers(key, count);
  int32_t *result = values ? take((size_t)*count * sizeof(*result)) : NULL;
  for (int64_t i = 0; i < *count; i++) result[i] = (int32_t)values[i];
  return result;
}

uint8_t *hex_bytes(const char *key, int64_t *count) {
  const char *digits = text(key);
  *count = digits ? (int64_t)strlen(digits) / 2 : 0;
  uint8_t *found = digits ? take((size_t)*count + 1) : NULL;
  for (int64_t i = 0; i < *count; i++) {
    const char pair[3] = {digits[2 * i], digits[2 * i + 1], 0};
    found[i] = (uint8_t)strtoul(pair, NULL, 16);
  }
  return found;
}

int32_t choice(const char *key, const char *const *values) {
  const char *word = text(key);
  if (!word) return 0;
  for (int32_t i = 0; values[i]; i++)
    if (strcmp(word, values[i]) == 0) return i;
  fail("unknown word", word);
  return 0;
}

/* ---- tensors ---- */

static const struct {
  const char *name;
  DLDataType dtype;
} dtypes[] = {
    {"f32", {kDLFloat, 32, 1}}, {"f16", {kDLFloat, 16, 1}},         {"bf16", {kDLBfloat, 16, 1}},
    {"i8", {kDLInt, 8, 1}},     {"e4m3", {kDLFloat8_e4m3fn, 8, 1}}, {"e5m2", {kDLFloat8_e5m2, 8, 1}},
    {"u8", {kDLUInt, 8, 1}},    {"i32", {kDLInt, 32, 1}},           {"i64", {kDLInt, 64, 1}},
    {"u4", {kDLUInt, 4, 1}},    {"e2m1", {kDLFloat4_e2m1fn, 4, 1}},
};

static DLDataType dtype_of(const char *name, size_t length) {
  for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
    if (strlen(dtypes[i].name) == length && strncmp(dtypes[i].name, name, length) == 0) return dtypes[i].dtype;
  fail("unknown dtype", name);
  return dtypes[0].dtype;
}

DLDataType dtype(const char *key) {
  const char *name = text(key);
  const DLDataType absent = {0, 0, 0};
  return name ? dtype_of(name, strlen(name)) : absent;
}

static uint32_t generated_byte(uint64_t seed, uint64_t index) {
  uint64_t z = ((seed << 32) + index + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return (uint32_t)((z ^ (z >> 31)) >> 56);
}

/* x has so few bits that every float dtype has it exactly. */
static uint16_t half_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  if (x == 0.0f) return (uint16_t)(bits >> 16 & 0x8000);
  return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 23 & 0xff) - 127 + 15) << 10) | (bits >> 13 & 0x3ff));
}

static void set_float(DLTensor *to, int64_t i, float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  if (to->dtype.bits == 32)
    ((float *)to->data)[i] = x;
  else
    ((uint16_t *)to->data)[i] = to->dtype.code == kDLBfloat ? (uint16_t)(bits >> 16) : half_bits(x);
}

static bool is_float(DLDataType dtype) { return dtype.bits >= 16 && dtype.code != kDLInt; }

static int64_t num_elements(const DLTensor *tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor->ndim; i++) count *= tensor->shape[i];
  return count;
}

static void fill(DLTensor *to, const char *contents) {
  const int64_t count = num_elements(to);
  if (contents[0] == '@') {
    const uint64_t seed = strtoull(contents + 1, NULL, 10);
    for (int64_t i = 0; i < count; i++) {
      const uint32_t byte = generated_byte(seed, (uint64_t)i);
      if (is_float(to->dtype))
        set_float(to, i, (float)((int32_t)byte - 128) / 128.0f);
      else
        ((uint8_t *)to->data)[i] = (uint8_t)(byte & 0xBF);
    }
  } else if (contents[0] == ':') {
    contents++;
    for (int64_t i = 0; i < count; i++, contents++) {
      const double value = strtod(contents, (char **)&contents);
      if (is_float(to->dtype))
        set_float(to, i, (float)value);
      else if (to->dtype.bits == 8)
        ((uint8_t *)to->data)[i] = (uint8_t)(int64_t)value;
      else if (to->dtype.bits == 32)
        ((int32_t *)to->data)[i] = (int32_t)value;
      else
        ((int64_t *)to->data)[i] = (int64_t)value;
    }
  } else if (contents[0] != '\0') {
    fail("a tensor of what?", contents);
  }
}

const DLTensor *named_tensor(const char *form) {
  for (const struct named *named = names; named; named = named->next)
    if (strcmp(named->name, form + 1) == 0) return named->value;
  fail("no such tensor", form);
  return NULL;
}

/* A tensor of that dtype and shape; elements are 0. */
static DLTensor *new_tensor(DLDataType dtype, int32_t ndim, const int64_t *shape) {
  DLTensor *tensor = take(sizeof(*tensor));
  tensor->dtype = dtype;
  tensor->device.device_type = kDLCPU;
  tensor->ndim = ndim;
  tensor->shape = take((size_t)ndim * sizeof(int64_t));
  tensor->strides = take((size_t)ndim * sizeof(int64_t));
  int64_t stride = 1;
  for (int32_t i = ndim - 1; i >= 0; i--) {
    tensor->shape[i] = shape[i];
    tensor->strides[i] = stride;
    stride *= shape[i];
  }
  tensor->data = take((size_t)stride * dtype.bits / 8);
  return tensor;
}

DLTensor *copy_tensor(const DLTensor *of) {
  DLTensor *copy = new_tensor(of->dtype, of->ndim, of->shape);
  const size_t width = of->dtype.bits / 8;
  const int64_t *strides = of->strides ? of->strides : copy->strides;
  for (int64_t i = 0; i < num_elements(of); i++) {
    int64_t offset = 0;
    for (int32_t dim = 0; dim < of->ndim; dim++) offset += i / copy->strides[dim] % of->shape[dim] * strides[dim];
    memcpy((char *)copy->data + (size_t)i * width, (const char *)of->data + of->byte_offset + (size_t)offset * width,
           width);
  }
  return copy;
}

static DLTensor *parse_tensor(const char *form) {
  if (form[0] == '$') return (DLTensor *)named_tensor(form);
  const char *bracket = strchr(form, '['), *end = bracket ? strchr(bracket, ']') : NULL;
  if (!end) fail("not a tensor", form);
  int64_t shape[16];
  int32_t ndim = 0;
  for (const char *at = bracket + 1; at < end && ndim < 16; at++) shape[ndim++] = strtoll(at, (char **)&at, 10);
  DLTensor *tensor = new_tensor(dtype_of(form, (size_t)(bracket - form)), ndim, shape);
  fill(tensor, end + 1);
  return tensor;
}

DLTensor *tensor(const char *key) { return text(key) ? parse_tensor(text(key)) : NULL; }

const DLTensor *const *tensors(const char *key, int64_t *count) {
  const char *list = text(key);
  *count = list ? count_items(list, ';') : 0;
  if (!list) return NULL;
  const DLTensor **result = take((size_t)*count * sizeof(*result));
  for (int64_t i = 0; i < *count; i++) {
    const size_t length = strcspn(list, ";");
    char *form = take(length + 1);
    memcpy(form, list, length);
    result[i] = strcmp(form, "-") == 0 ? NULL : parse_tensor(form);
    list += length + 1;
  }
  return result;
}

void keep(const char *name, const DLTensor *value) {
  struct named *named = take(sizeof(*named));
  char *copy = take(strlen(name) + 1);
  strcpy(copy, name);
  named->name = copy;
  named->value = value;
  named->next = names;
  names = named;
}

/* ---- results ---- */

__attribute__((format(printf, 1, 2))) static void put(const char *format, ...) {
  va_list arguments;
  if (result_capacity - result_length < 600) {
    result_capacity = result_capacity * 2 + 1200;
    result_buffer = realloc(result_buffer, result_capacity);
    if (!result_buffer) abort();
  }
  va_start(arguments, format);
  result_length += (size_t)vsnprintf(result_buffer + result_length, 600, format, arguments);
  va_end(arguments);
}

void result_text(const char *name, const char *value) {
  put(" %s=", name);
  for (size_t left = strlen(value); left > 0;) {
    const int part = left < 500 ? (int)left : 500;
    put("%.*s", part, value);
    value += part;
    left -= (size_t)part;
  }
}
void result_digits(const char *name, uint64_t value) { put(" %s=%016llx", name, (unsigned long long)value); }
void result_integer(const char *name, int64_t value) { put(" %s=%lld", name, (long long)value); }

void result_integers(const char *name, int64_t count, const int64_t *values) {
  put(" %s=", name);
  for (int64_t i = 0; i < count; i++) put(i ? ",%lld" : "%lld", (long long)values[i]);
}

void result_integers_32(const char *name, int64_t count, const int32_t *values) {
  put(" %s=", name);
  for (int64_t i = 0; i < count; i++) put(i ? ",%d" : "%d", values[i]);
}

void result_tensor(const char *name, const DLTensor *value, enum print print) {
  const char *dtype_name = "?";
  for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
    if (dtypes[i].dtype.code == value->dtype.code && dtypes[i].dtype.bits == value->dtype.bits)
      dtype_name = dtypes[i].name;
  put(" %s=%s[", name, dtype_name);
  for (int32_t i = 0; i < value->ndim; i++) put(i ? ",%lld" : "%lld", (long long)value->shape[i]);
  const DLTensor *compact = copy_tensor(value);
  const uint8_t *bytes = compact->data;
  const int64_t count = num_elements(value) * value->dtype.bits / 8;
  uint64_t hash = 0xcbf29ce484222325u;
  put(print == AS_HEX ? "]:" : "]#");
  for (int64_t i = 0; i < count; i++) {
    hash = (hash ^ bytes[i]) * 0x100000001b3u;
    if (print == AS_HEX) put("%02x", bytes[i]);
  }
  if (print == AS_HASH) put("%016llx", (unsigned long long)hash);
}

const char *results(void) { return result_length ? result_buffer : ""; }
