/* The plug-in slot of the host: libkvcache, loaded by path while the program runs. */
#pragma once
#include <kvcache.h>

struct plugin {
  void *library;
  const kvc_api *api; /* what the loaded library offers, up to api->struct_size */
};

/* A member that the library's table may be too short for. */
#define PLUGIN_HAS(plugin, member) \
  ((plugin)->api->struct_size >= offsetof(kvc_api, member) + sizeof((plugin)->api->member))

/* Loads a library and agrees on a version with it. Returns 0, or -1 with the reason in `why`, and nothing is loaded. */
int plugin_load(const char *path, struct plugin *plugin, char *why, size_t why_size);
void plugin_unload(struct plugin *plugin);
