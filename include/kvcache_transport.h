/* The table of functions that a transport fills for libkvcache: messages to caches of other processes and machines.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * ============================================================================================
 * 1  Introduction
 * ============================================================================================
 * A transport carries messages between endpoints. An endpoint has an address: bytes that any other endpoint of the same kind
 * can connect to. The transport does not interpret the messages. Anyone can write one: docs/reference/transfer.md explains it.
 *
 * A program that uses a transport:
 *
 *   char address[4096];
 *   int64_t bytes = transport.address(transport.self, address, sizeof address);      // goes to the other side
 *
 *   uint64_t peer;                                                                   // the other side
 *   if (transport.connect(transport.self, address, bytes, &peer, &error) != KVC_TRANSPORT_OK) return report(error.message);
 *   int32_t sent = transport.send(transport.self, peer, &header, sizeof header, data, data_bytes, 7, &error);
 *
 *   kvc_transport_event events[16];
 *   int64_t count = transport.poll(transport.self, events, 16);                      // both sides, again and again
 *
 * Rules for all functions
 *   Blocking  No function but close waits for the network or for a peer. poll makes progress: nothing moves without it.
 *   Threads   The caller makes one call at a time.
 *   Order     Messages to one peer arrive whole, once, and in the order of their sends.
 *   Memory    `data` of a send stays valid until the event SENT of its operation was polled, or close has returned. `header` is
 *             copied.
 *   Peers     A peer that has ended gives the event LOST, as far as the transport can tell. The caller has its own timeouts.
 *   fork()    In a child of fork(), connect and send fail, and poll gives nothing.
 *   Unwinding No exception and no panic leaves a function.
 */
#ifndef KVCACHE_TRANSPORT_H_
#define KVCACHE_TRANSPORT_H_

#include <string.h>

#include "kvcache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Caller and transport agree on it exactly, while the version of libkvcache is 0.x. */
#define KVC_TRANSPORT_VERSION 1

enum {
  KVC_TRANSPORT_MAX_ADDRESS_BYTES = 4096,
  KVC_TRANSPORT_MAX_HEADER_BYTES = 128
};

/* ============================================================================================
 * 2  Results and events
 * ============================================================================================ */

enum kvc_transport_result {
  KVC_TRANSPORT_OK = 0,
  KVC_TRANSPORT_RETRY = 1, /* send: the transport is full of messages. Nothing was done; the same call may succeed later */
  KVC_TRANSPORT_FAILED = 2 /* the peer is lost, or the call was wrong: the error says why */
};

enum kvc_transport_event_kind {
  KVC_TRANSPORT_SENT = 1,     /* the data of an operation is no longer used; it need not have arrived */
  KVC_TRANSPORT_RECEIVED = 2, /* a message */
  KVC_TRANSPORT_LOST = 3      /* a peer of connect does not answer any more */
};

typedef struct kvc_transport_event {
  int32_t kind;         /* KVC_TRANSPORT_SENT, RECEIVED or LOST */
  uint32_t reserved;    /* 0 */
  uint64_t operation;   /* SENT: of the send */
  uint64_t peer;        /* LOST */
  const void *header;   /* RECEIVED; valid until the next poll, and so is data */
  int64_t header_bytes;
  const void *data;
  int64_t data_bytes;
} kvc_transport_event;

/* ============================================================================================
 * 3  The table
 * ============================================================================================ */

/* An endpoint. The struct may be copied; every copy names the same endpoint. All functions are set. */
struct kvc_transport { /* kvc_transport: kvcache.h */
  uint32_t struct_size;
  uint32_t version;          /* KVC_TRANSPORT_VERSION */
  const char *name;          /* "ucx": sides with equal names reach each other. At most 63 bytes; valid until close */
  void *self;                /* the first argument of every function */
  int64_t max_message_bytes; /* the most data of one message, at least 65536; constant */

  /* Writes the address of this endpoint, and returns its length, at most KVC_TRANSPORT_MAX_ADDRESS_BYTES; -1: it has none. */
  int64_t (*address)(void *self, void *buffer, int64_t capacity);

  /* Makes a peer of an address. It need not have reached it when it returns.
   *   error  out, never NULL; filled if the result is FAILED */
  int32_t (*connect)(void *self, const void *address, int64_t bytes, uint64_t *peer, kvc_error *error);

  /* Forgets a peer. Messages that were accepted still go, if the peer lives, and their SENT is still polled. */
  void (*disconnect)(void *self, uint64_t peer);

  /* Sends a message.
   *   header     copied; header_bytes <= KVC_TRANSPORT_MAX_HEADER_BYTES
   *   data       nullable if data_bytes is 0
   *   operation  named by SENT. There is none if data_bytes is 0
   * Results: OK, RETRY, FAILED. */
  int32_t (*send)(void *self, uint64_t peer, const void *header, int64_t header_bytes, const void *data,
                  int64_t data_bytes, uint64_t operation, kvc_error *error);

  /* Makes progress, and takes up to `capacity` events. Returns their number. */
  int64_t (*poll)(void *self, kvc_transport_event *events, int64_t capacity);

  /* Releases the endpoint. Its address reaches nothing any more. It may wait for the network for a short time, so that messages
   * that were accepted can leave. */
  void (*close)(void *self);
};

static inline void kvc_transport_init(kvc_transport *transport) {
  memset(transport, 0, sizeof *transport);
  transport->struct_size = (uint32_t)sizeof *transport;
  transport->version = KVC_TRANSPORT_VERSION;
}

/* The one symbol of a plug-in: "kvc_transport_open". It fills `transport`, for which the caller has called kvc_transport_init.
 *   version    the caller's KVC_TRANSPORT_VERSION. UNSUPPORTED if the plug-in was built for another
 *   options    text that the plug-in defines
 *   transport  returned; released by its close
 *   error      out, never NULL; filled if the status is not KVC_OK */
typedef kvc_status (*kvc_transport_open_fn)(uint32_t version, const char *options, kvc_transport *transport,
                                            kvc_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_TRANSPORT_H_ */
