/* The table of functions that a transport fills for libkvcache. A transport carries messages to caches of other processes
 * and machines.
 *
 * SPDX-License-Identifier: Apache-2.0
 *
 * ============================================================================================
 * 1  Introduction
 * ============================================================================================
 * A transport carries messages between endpoints, and does not interpret them. An endpoint has an address. An address is a
 * run of bytes, with which any other endpoint of the same kind can connect to the endpoint. docs/reference/transfer.md
 * explains how to write a transport.
 *
 * A program that uses a transport:
 *
 *   char address[4096];
 *   int64_t bytes = transport.address(transport.self, address, sizeof address);      // send this to the other side
 *
 *   uint64_t peer;                                                                   // the other side
 *   if (transport.connect(transport.self, address, bytes, &peer, &error) != KVC_TRANSPORT_OK) return report(error.message);
 *   int32_t sent = transport.send(transport.self, peer, &header, sizeof header, data, data_bytes, 7, &error);
 *
 *   kvc_transport_event events[16];
 *   int64_t count = transport.poll(transport.self, events, 16);                      // both sides, again and again
 *
 * Rules for all functions
 *   Blocking  Only flush and close wait for the network or for a peer. Messages are sent and received inside poll, so call
 *             it often.
 *   Threads   The caller makes one call at a time.
 *   Order     Messages to one peer arrive whole, once, and in the order of their sends.
 *   Memory    The `data` of a send must stay valid until the event SENT of its operation was polled, or close has returned.
 *             After disconnect, poll soon gives these events, even if the peer never receives anything again.
 *             The transport copies `header`.
 *   Peers     If the transport notices that a peer has ended, it gives the event LOST. It may not notice, so the caller
 *             needs timeouts of its own.
 *   fork()    In a child of fork(), connect and send fail, and poll gives no events.
 *   Unwinding No exception and no panic may leave a function.
 */
#ifndef KVCACHE_TRANSPORT_H_
#define KVCACHE_TRANSPORT_H_

#include <string.h>

#include "kvcache.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this table. While the version of libkvcache is 0.x, caller and transport must have the same version. */
#define KVC_TRANSPORT_VERSION 2

enum {
  KVC_TRANSPORT_MAX_ADDRESS_BYTES = 4096,
  KVC_TRANSPORT_MAX_HEADER_BYTES = 128
};

/* ============================================================================================
 * 2  Results and events
 * ============================================================================================ */

enum kvc_transport_result {
  KVC_TRANSPORT_OK = 0,
  KVC_TRANSPORT_RETRY = 1, /* send: the transport has too many messages. Nothing was done, and the same call may succeed
                              later */
  KVC_TRANSPORT_FAILED = 2 /* the peer is lost, or an argument was wrong. The error says which */
};

enum kvc_transport_event_kind {
  KVC_TRANSPORT_SENT = 1,     /* the transport no longer uses the data of an operation. The message may still be on its
                                 way */
  KVC_TRANSPORT_RECEIVED = 2, /* a message has arrived */
  KVC_TRANSPORT_LOST = 3      /* a peer to which this endpoint connected does not answer any more */
};

typedef struct kvc_transport_event {
  int32_t kind;         /* KVC_TRANSPORT_SENT, RECEIVED or LOST */
  uint32_t reserved;    /* 0 */
  uint64_t operation;   /* SENT: the operation that was given to send */
  uint64_t peer;        /* LOST: the peer that connect returned */
  const void *header;   /* RECEIVED: the header of the message. header and data are valid until the next poll */
  int64_t header_bytes;
  const void *data;     /* RECEIVED: the data of the message */
  int64_t data_bytes;
} kvc_transport_event;

/* ============================================================================================
 * 3  The table
 * ============================================================================================ */

/* An endpoint. The struct may be copied, and every copy stands for the same endpoint. All functions must be set. */
struct kvc_transport { /* kvc_transport: kvcache.h */
  uint32_t struct_size;
  uint32_t version;          /* KVC_TRANSPORT_VERSION */
  const char *name;          /* a name such as "ucx". Two endpoints can connect only if their names are equal. At most 63
                                bytes; valid until close */
  void *self;                /* the first argument of every function */
  int64_t max_message_bytes; /* the largest size of the data of one message, at least 65536; constant */

  /* Writes the address of this endpoint, and returns its length, which is at most KVC_TRANSPORT_MAX_ADDRESS_BYTES. Returns
   * -1 if the endpoint has no address. */
  int64_t (*address)(void *self, void *buffer, int64_t capacity);

  /* Creates a peer from an address. The function may return before the peer is reached.
   *   error  out, never NULL; filled if the result is FAILED */
  int32_t (*connect)(void *self, const void *address, int64_t bytes, uint64_t *peer, kvc_error *error);

  /* Waits until the messages that send has accepted for a peer have left, but at most timeout_ms. After OK, they arrive even
   * if poll is never called again. The library calls this before each disconnect.
   * Results: OK, RETRY (the time is over), FAILED (the peer is lost). */
  int32_t (*flush)(void *self, uint64_t peer, int64_t timeout_ms);

  /* Releases a peer, without waiting. Messages that have not left may be lost. The transport soon stops using their data,
   * whatever the peer does: further calls of poll give their SENT events. */
  void (*disconnect)(void *self, uint64_t peer);

  /* Sends a message.
   *   header     copied; header_bytes <= KVC_TRANSPORT_MAX_HEADER_BYTES
   *   data       nullable if data_bytes is 0
   *   operation  a number that the event SENT of this message has. If data_bytes is 0, there is no such event
   * Results: OK, RETRY, FAILED. */
  int32_t (*send)(void *self, uint64_t peer, const void *header, int64_t header_bytes, const void *data,
                  int64_t data_bytes, uint64_t operation, kvc_error *error);

  /* Sends and receives what it can without waiting, and takes up to `capacity` events. Returns their number. */
  int64_t (*poll)(void *self, kvc_transport_event *events, int64_t capacity);

  /* Releases the endpoint. Its address cannot be reached any more. The function may wait for the network for a short time,
   * so that accepted messages are sent. */
  void (*close)(void *self);
};

static inline void kvc_transport_init(kvc_transport *transport) {
  memset(transport, 0, sizeof *transport);
  transport->struct_size = (uint32_t)sizeof *transport;
  transport->version = KVC_TRANSPORT_VERSION;
}

/* The type of the function "kvc_transport_open", which is the only symbol that a plug-in must export. It fills `transport`,
 * for which the caller has already called kvc_transport_init.
 *   version    the caller's KVC_TRANSPORT_VERSION. UNSUPPORTED if the plug-in was built for another version
 *   options    text whose meaning the plug-in defines
 *   transport  returned; released by its close
 *   error      out, never NULL; filled if the status is not KVC_OK */
typedef kvc_status (*kvc_transport_open_fn)(uint32_t version, const char *options, kvc_transport *transport,
                                            kvc_error *error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* KVCACHE_TRANSPORT_H_ */
