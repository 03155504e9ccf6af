package dev.kvcache.conformance;

import dev.kvcache.Append;
import dev.kvcache.AppendSlots;
import dev.kvcache.Attend;
import dev.kvcache.Batch;
import dev.kvcache.Cache;
import dev.kvcache.CacheBuilder;
import dev.kvcache.Context;
import dev.kvcache.Estimate;
import dev.kvcache.FlashAttn;
import dev.kvcache.Group;
import dev.kvcache.Import;
import dev.kvcache.KvcacheException;
import dev.kvcache.Layer;
import dev.kvcache.Library;
import dev.kvcache.PageKeys;
import dev.kvcache.Plan;
import dev.kvcache.PlanArgs;
import dev.kvcache.RopeMode;
import dev.kvcache.RopeScaling;
import dev.kvcache.RowFormat;
import dev.kvcache.Select;
import dev.kvcache.Stats;
import dev.kvcache.Tables;
import dev.kvcache.Tensor;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.LongStream;

/** The runner of Java: makes the calls of scripts through the package. bindings/conformance/README.md has the format. */
public final class Runner {
  private static final Map<String, Consumer<Script>> OPERATIONS = new HashMap<>();

  private Runner() {}

  static {
    GeneratedOperations.register(OPERATIONS);
    PrefixOperations.register(OPERATIONS);
    SaveOperations.register(OPERATIONS);
    TierOperations.register(OPERATIONS);
    TransferOperations.register(OPERATIONS);
    EventOperations.register(OPERATIONS);
    configuration();
    sequences();
    steps();
    transfers();
    stateless();
  }

  private static void operation(String name, Consumer<Script> run) {
    OPERATIONS.put(name, run);
  }

  // ---- library, context, configuration -------------------------------------------------------------------------------

  private static void configuration() {
    operation("version", s -> s.results.put("version", Library.version()));
    operation("context_create", s ->
        s.contexts.put(s.integer("context"), Context.builder().threads(s.integer("threads")).simd(s.word("simd", null)).build()));
    operation("context_describe", s -> s.context().describe());
    operation("context_check", s -> s.context().check());
    operation("context_close", s -> s.context().close());
    operation("group", s -> s.groups.add(group(s).pages(s.integer("pages", 0))));
    operation("layer", s -> {
      s.layers.add(s.has("recurrent") ? Layer.builder().group(s.integer("group")) : layer(s));
      s.states.add(new ArrayList<>());
    });
    operation("state", s -> s.states.get(s.states.size() - 1)
        .add(new Layer.State(Values.dtype(s.word("dtype", "f32")), s.number("fill"), s.longs("shape"))));
    operation("estimate", s -> {
      int group = (int) s.integer("group", -1);
      Estimate e = config(s).estimate(group);
      s.results.put("num_pages", e.pages());
      s.results.put("page_bytes", e.pageBytes());
      s.results.put("token_bytes", e.tokenBytes());
      s.results.put("storage_bytes", e.storageBytes());
    });
    operation("cache_create", s -> {
      try {
        s.caches.put(s.integer("cache"), config(s).build());
      } finally {
        s.layers.clear();
        s.states.clear();
        s.groups.clear();
      }
    });
  }

  private static Group group(Script s) {
    if (s.word("row", "kv").equals("state")) return Group.recurrent();
    Group group = switch (s.word("visibility", "all")) {
      case "all" -> Group.full().tokensPerRow((int) s.integer("tokens_per_row", 0));
      case "window" -> Group.sliding(s.integer("window", 0));
      case "chunk" -> Group.chunked(s.integer("chunk", 0));
      case "encoder" -> Group.cross();
      default -> throw new IllegalArgumentException("visibility");
    };
    return switch (s.word("row", "kv")) {
      case "kv" -> group;
      case "latent" -> group.latent();
      default -> throw new IllegalArgumentException("row");
    };
  }

  private static Layer.Builder layer(Script s) {
    Layer.Builder layer = Layer.builder().group(s.integer("group")).qHeads((int) s.integer("q_heads", 1))
        .kvHeads((int) s.integer("kv_heads", 1)).headDim(s.integer("head_dim")).vHeadDim(s.integer("v_head_dim"))
        .dtype(Values.dtype(s.word("dtype", "f32"))).rope(RopeMode.valueOf(s.word("rope", "none").toUpperCase(Locale.ROOT)))
        .ropeDim(s.integer("rope_dim")).ropeOffset(s.integer("rope_offset")).ropeInterleaved(s.has("rope_interleaved"))
        .ropeTheta(s.number("rope_theta")).softmaxScale(s.number("softmax_scale")).latentDim(s.integer("latent_dim")).totalKvHeads(s.integer("total_kv_heads")).keysOnly(s.has("keys_only"))
        .rowFormat(RowFormat.valueOf(s.word("row_format", "dtype").toUpperCase(Locale.ROOT)))
        .scales(s.floats("k_scales"), s.floats("v_scales"));
    if (s.has("kv_layer")) {
      layer.kvLayer(s.integer("kv_layer"));
    }
    if (s.has("kv_storage")) {
      layer.kvStorage(s.tensor("kv_storage"));
    }
    if (s.has("k_storage")) {
      layer.kvStorage(s.tensor("k_storage"), s.tensor("v_storage"));
    }
    double factor = s.number("factor");
    long original = s.integer("original", 0);
    return switch (s.word("scaling", "")) {
      case "linear" -> layer.ropeScaling(RopeScaling.linear(factor));
      case "llama3" -> layer.ropeScaling(RopeScaling.llama3(factor, s.number("low_freq"), s.number("high_freq"), original));
      case "yarn" -> layer.ropeScaling(RopeScaling.yarn(factor, original).beta(s.number("beta_fast"), s.number("beta_slow"))
          .attentionFactor(s.number("attention_factor")));
      case "longrope" -> layer.ropeScaling(RopeScaling.longrope(s.numbers("short"), s.numbers("long"), factor, original)
          .attentionFactor(s.number("attention_factor")));
      default -> layer;
    };
  }

  private static CacheBuilder config(Script s) {
    List<Layer> layers = new ArrayList<>();
    for (int i = 0; i < s.layers.size(); i++) {
      layers.add(s.layers.get(i).states(s.states.get(i).toArray(new Layer.State[0])).build());
    }
    CacheBuilder config = Cache.builder().context(s.context()).layers(layers).groups(s.groups.toArray(new Group[0]))
        .pageSize(s.integer("page_size")).capacityTokens(s.integer("capacity_tokens", 0)).capacityPages(s.integer("capacity_pages", 0))
        .capacityBytes(s.integer("capacity_bytes", 0)).maxSequences(s.integer("max_sequences"))
        .maxBatchTokens(s.integer("max_batch_tokens")).maxOpenForwards(s.integer("max_open_forwards"))
        .maxTreeNodes(s.integer("max_tree_nodes")).maxCheckpoints(s.integer("max_checkpoints")).maxDraftStates(s.integer("max_draft_states")).tpSize(s.integer("tp_size")).tpRank(s.integer("tp_rank"))
        .rollbackTokens(s.integer("rollback_tokens", 0)).sharePrefixes(switch (s.word("sharing", "")) {
          case "never" -> Cache.SharePrefixes.NEVER;
          case "always" -> Cache.SharePrefixes.ALWAYS;
          default -> Cache.SharePrefixes.WHERE_IT_PAYS;
        });
    if (s.has("rollback_tokens") && s.integer("rollback_tokens", 0) == 0) {
      config.noRollback();
    }
    if (s.has("streaming")) {
      config.streaming();
    }
    if (s.has("deterministic")) {
      config.deterministic();
    }
    if (s.has("prefix_index")) {
      config.prefixIndex();
    }
    if (s.word("prefix_policy", "").equals("lru")) {
      config.prefixPolicy(Cache.PrefixPolicy.LRU);
    }
    if (s.has("zero_on_free")) {
      config.zeroOnFree();
    }
    if (s.has("fingerprint")) {
      config.fingerprint(bytes(s, "fingerprint"));
    }
    config.eventsCapacity(s.integer("events_capacity", 0)).eventsTierPages(s.integer("events_tier_pages", 0));
    config.prefixPages(s.integer("prefix_pages", 0)).prefixCheckpoints(s.integer("prefix_checkpoints", 0));
    return s.word("storage", "").equals("none") ? config.tablesOnly() : config;
  }

  // ---- cache and sequences -------------------------------------------------------------------------------------------

  private static void sequences() {
    operation("cache_close", s -> s.cache().close());
    operation("stats", Runner::stats);
    operation("cache_describe", s -> s.cache().describe());
    operation("digest", s -> s.results.put("digest", String.format(Locale.ROOT, "%016x", s.cache().digest())));
    operation("add", s -> s.bind(s.cache().add(s.longs("seqs").length)));
    operation("fork", s -> s.bind(s.cache().fork(s.sequences("parents"), s.longs("positions"))));
    operation("pages", s -> s.results.put("pages", Values.join(s.cache().pages(s.sequence(), s.integer("group")))));
    operation("nearest", s -> {
      Cache.Nearest nearest = s.cache().nearestPosition(s.sequence(), s.integer("position", 0));
      s.results.put("before", nearest.before());
      s.results.put("after", nearest.after());
    });
    operation("set_streaming", s -> s.cache().setStreaming(new Cache.Window(s.integer("sinks", 0), s.integer("window", 0)),
        s.has("prefix_is_sink"), s.sequences("seqs")));
    operation("streaming", s -> {
      Cache.Window window = s.cache().streaming(s.sequence())[0];
      s.results.put("sinks", window.sinks());
      s.results.put("window", window.window());
    });
    operation("set_rope", s -> s.cache().setRope(s.word("set", "").equals("long"), s.sequences("seqs")));
    operation("commit", s -> s.cache().commit(s.sequences("seqs"), s.ints("leaves")));
  }

  private static void stats(Script s) {
    Stats stats = s.cache().stats((int) s.integer("group", -1));
    s.results.put("num_sequences", stats.sequences());
    s.results.put("pages_total", stats.pagesTotal());
    s.results.put("pages_used", stats.pagesUsed());
    s.results.put("pages_free", stats.pagesFree());
    s.results.put("pages_shared", stats.pagesShared());
    s.results.put("pages_peak", stats.pagesPeak());
    s.results.put("tokens_held", stats.tokensHeld());
    s.results.put("tokens_shared", stats.tokensShared());
    s.results.put("tokens_logical", stats.tokensLogical());
    s.results.put("fragmentation_bytes", stats.fragmentationBytes());
    s.results.put("storage_bytes", stats.storageBytes());
  }

  // ---- steps ---------------------------------------------------------------------------------------------------------

  private static Batch batch(Script s) {
    Batch batch = Batch.of(s.sequences("seqs"), s.ints("tokens")).treeParents(s.ints("parents")).spanIds(s.ints("spans"));
    if (s.has("encoder_group")) {
      batch.encoderGroup(s.integer("encoder_group"));
    }
    int[] layers = s.ints("layers");
    return layers == null ? batch : batch.layers(layers[0], layers[1]);
  }

  private static void steps() {
    operation("graph_create", s -> s.graphs.put(s.integer("graph"),
        s.cache().createGraph(s.integer("max_sequences"), s.integer("max_tokens"), s.integer("max_pages_per_row"))));
    operation("graph_close", s -> {
      if (!s.closedGraphs.contains(s.graph())) {
        s.graph().close();
        s.closedGraphs.add(s.graph());
      } else {
        s.skip(); // to close it again is no error in Java
      }
    });
    operation("can_fit", s -> {
      if (s.has("graph")) {
        s.graph().canFit(batch(s));
      } else {
        s.cache().canFit(batch(s));
      }
    });
    operation("begin", s ->
        s.steps.put(s.integer("step"), s.has("graph") ? s.graph().begin(batch(s)) : s.cache().begin(batch(s))));
    operation("info", s -> {
      s.results.put("positions", Values.join(s.step().positions()));
      s.results.put("last_rows", Values.join(s.step().lastRows()));
    });
    operation("describe", s -> s.step().describe());
    operation("append", s -> {
      Append args = Append.of(s.tensor("k"), s.tensor("v")).ropeCosSin(s.tensor("rope_cos_sin")).scales(s.tensor("k_scale"), s.tensor("v_scale"));
      s.step().append(s.integer("layer"), s.has("as_stored") ? args.asStored() : args);
    });
    operation("attend", s -> {
      Tensor out = s.tensor("out");
      Tensor lse = s.tensor("lse");
      String part = s.word("part", "");
      s.step().attend(s.integer("layer"), Attend.of(s.tensor("q"), s.tensor("k"), s.tensor("v"), out).lse(lse)
          .nonCausal(s.has("non_causal")).past(part.equals("past")).self(part.equals("self")).softmaxScale(s.number("softmax_scale"))
          .softcap(s.number("softcap")).alibiSlopes(s.tensor("alibi")).alibiSigned(s.has("alibi_signed")).sinks(s.tensor("sinks")).ropeCosSin(s.tensor("rope_cos_sin"))
          .upProjections(s.tensor("w_uk"), s.tensor("w_uv")).indices(s.tensor("indices"), (int) s.integer("index_block", 0))
          .relBias(s.tensor("rel_bias"), s.has("rel_bias_zero")).keyBias(s.tensor("key_bias")).mask(s.tensor("mask"))
          .noSpans(s.has("no_spans")).stepWindow(s.has("step_window")));
      outputs(s, out, lse);
    });
    operation("select", s -> {
      Tensor out = s.tensor("out");
      s.step().select(s.integer("layer"), Select.of(s.tensor("q"), out).weights(s.tensor("weights")).eachHead(s.has("each_head"))
          .candidates(s.tensor("candidates"), s.integer("candidate_block")).ropeCosSin(s.tensor("rope_cos_sin"))
          .block(s.integer("index_block")).always(s.integer("first_blocks"), s.integer("last_blocks")));
      outputs(s, out, null);
    });
    operation("load_state", s -> {
      Tensor out = s.tensor("out");
      s.step().loadState(s.integer("layer"), s.integer("state"), (int) s.integer("token", -1), out);
      outputs(s, out, null);
    });
    operation("store_state", s -> s.step().storeState(s.integer("layer"), s.integer("state"), (int) s.integer("token", -1), s.tensor("value")));
    operation("tables", s -> {
      Tables.Request request = Tables.request().part(part(s));
      if (s.has("slots")) {
        request.slots();
      }
      if (s.has("pad")) {
        request.padValue(s.integer("pad"));
      }
      for (String array : s.word("arrays", "").split(",")) {
        switch (array) {
          case "dense" -> request.dense();
          case "csr" -> request.csr();
          case "tokens" -> request.tokens();
          default -> { }
        }
      }
      tables(s, s.step().tables(s.integer("group"), request));
    });
    operation("cancel", s -> s.step().cancel());
    operation("end", s -> s.step().end());
    operation("abort", s -> s.step().abort());
  }

  private static void outputs(Script s, Tensor out, Tensor lse) {
    s.results.put("out", Values.print(out, false));
    if (lse != null) {
      s.results.put("lse", Values.print(lse, false));
    }
  }

  private static Tables.Part part(Script s) {
    return Tables.Part.valueOf(s.word("part", "whole").toUpperCase(Locale.ROOT));
  }

  private static void tables(Script s, Tables t) {
    s.results.put("causal", t.causal ? 1 : 0);
    s.results.put("num_rows", t.rows);
    s.results.put("num_queries", t.queries);
    s.results.put("page_size", t.pageSize);
    s.results.put("max_seqlen_q", t.maxSeqlenQ);
    s.results.put("max_seqlen_k", t.maxSeqlenK);
    s.results.put("max_pages", t.maxPages);
    s.results.put("num_pages", t.pages);
    s.results.put("num_keys", t.keys);
    array(s, "block_table", t.blockTable);
    array(s, "cache_seqlens", t.cacheSeqlens);
    array(s, "cu_seqlens_q", t.cuSeqlensQ);
    array(s, "cu_seqlens_k", t.cuSeqlensK);
    array(s, "indptr", t.indptr);
    array(s, "indices", t.indices);
    array(s, "last_page_len", t.lastPageLen);
    array(s, "key_starts", t.keyStarts);
    array(s, "leftpad", t.leftpad);
    array(s, "batch_rows", t.batchRows);
    array(s, "sink_tokens", t.sinkTokens);
    array(s, "hole_tokens", t.holeTokens);
    if (t.slotMapping != null) {
      s.results.put("slot_mapping", Values.join(t.slotMapping));
    }
    array(s, "positions", t.positions);
    array(s, "last_rows", t.lastRows);
  }

  private static void array(Script s, String name, int[] values) {
    if (values != null) {
      s.results.put(name, Values.join(values));
    }
  }

  // ---- tensors, transfers --------------------------------------------------------------------------------------------

  private static void transfers() {
    operation("tensor", s -> s.tensors.put(s.word("name", ""), s.tensor("value")));
    operation("show", s -> s.results.put("value", Values.print(s.tensors.get(s.word("name", "")), s.has("hash"))));
    operation("merge_states", s -> {
      Tensor out = s.tensor("out");
      Tensor lse = s.tensor("lse");
      s.context().merge(s.list("outs"), s.list("lses"), out, lse);
      outputs(s, out, lse);
    });
    operation("export", s -> {
      Cache.Part[] parts = s.has("scales") ? Cache.Part.values() : new Cache.Part[] {Cache.Part.K, Cache.Part.V};
      Cache.Exported exported = s.cache().export(s.sequence(), s.integer("layer"), s.integer("begin", 0), s.integer("end", 0), parts);
      exported(s, "k", exported.k());
      exported(s, "v", exported.v());
      exported(s, "k_scale", exported.kScale());
      exported(s, "v_scale", exported.vScale());
    });
    operation("import", s -> {
      Import tokens = Import.of(s.list("k"), s.list("v")).scales(s.list("k_scale"), s.list("v_scale"));
      s.cache().importTokens(s.sequence(), s.has("as_stored") ? tokens.asStored() : tokens);
    });
    operation("export_pool", s -> {
      Cache.Pool pool = Cache.Pool.valueOf(s.word("pool", "").toUpperCase(Locale.ROOT));
      Tensor view = s.cache().viewPool(s.integer("layer"), pool, s.has("writable"));
      s.results.put("pool", Values.print(view, true));
      s.results.put("readonly", view.isReadOnly() ? 1 : 0);
    });
    operation("take_copies", s -> {
      List<Cache.Copy> copies = s.cache().takeCopies();
      s.results.put("copies", Values.join(copies.stream().flatMapToLong(copy ->
          LongStream.of(copy.group(), copy.sourceSlot(), copy.targetSlot(), copy.count())).toArray()));
    });
  }

  private static void exported(Script s, String name, Tensor tensor) {
    if (tensor != null) {
      s.results.put(name, Values.print(tensor, !s.has("hex")));
      if (s.has(name)) {
        s.tensors.put(s.word(name, ""), tensor);
      }
    }
  }

  // ---- without a cache -----------------------------------------------------------------------------------------------

  private static void stateless() {
    operation("flash_attn", s -> {
      Tensor out = s.tensor("out");
      Tensor lse = s.tensor("lse");
      s.context().flashAttnWithKvCache(FlashAttn.of(s.tensor("q"), s.tensor("k_cache"), s.tensor("v_cache"), out).softmaxLse(lse)
          .k(s.tensor("k")).v(s.tensor("v")).qv(s.tensor("qv")).cacheSeqlens(s.tensor("cache_seqlens")).sequsedK(s.tensor("seqused_k"))
          .cacheBatchIdx(s.tensor("cache_batch_idx")).cacheLeftpad(s.tensor("cache_leftpad")).blockTable(s.tensor("block_table"))
          .cuSeqlensQ(s.tensor("cu_seqlens_q")).cuSeqlensKNew(s.tensor("cu_seqlens_k_new")).rotaryCos(s.tensor("rotary_cos"))
          .rotarySin(s.tensor("rotary_sin")).rotarySeqlens(s.tensor("rotary_seqlens")).qDescale(s.tensor("q_descale"))
          .kDescale(s.tensor("k_descale")).vDescale(s.tensor("v_descale")).alibiSlopes(s.tensor("alibi")).alibiSigned(s.has("alibi_signed")).sinks(s.tensor("sinks"))
          .indices(s.tensor("indices"))
          .softmaxScale(s.number("softmax_scale")).softcap(s.number("softcap")).causal(s.has("causal"))
          .window((int) s.integer("window_left", -1), (int) s.integer("window_right", -1)).attentionChunk(s.integer("chunk"))
          .numSplits(s.integer("num_splits")).rotaryInterleaved(s.has("rotary_interleaved")));
      outputs(s, out, lse);
    });
    operation("append_slots", s -> s.context().appendSlots(AppendSlots.of(s.tensor("k"), s.tensor("v"), s.tensor("k_cache"),
        s.tensor("v_cache"), s.tensor("slots")).kScale(s.tensor("k_scale")).vScale(s.tensor("v_scale")).rotaryCos(s.tensor("rotary_cos"))
        .rotarySin(s.tensor("rotary_sin")).positions(s.tensor("positions")).rotaryInterleaved(s.has("rotary_interleaved"))));
    operation("page_keys", Runner::pageKeys);
    operation("plan_create", s -> s.plans.put(s.integer("plan"), plan(s).build()));
    operation("plan_build", s -> s.results.put("generation", s.plan().build(PlanArgs.of(s.tensor("seq_lens"))
        .appendLengths(s.tensor("append_lengths")).rows(s.tensor("rows")).blockTable(s.tensor("block_table"))
        .reqToToken(s.tensor("req_to_token")).encoderLens(s.tensor("encoder_lens")).treeParents(s.tensor("tree_parents"))
        .rowsGrew(s.has("rows_grew")))));
    operation("plan_tables", s -> {
      Tables tables = s.plan().tables(s.integer("step"), part(s));
      tables(s, tables);
      s.results.put("generation", tables.generation);
    });
    operation("plan_check", s -> s.plan().check(s.integer("generation", 0)));
    operation("plan_close", s -> s.plan().close());
  }

  static byte[] bytes(Script s, String key) {
    return HexFormat.of().parseHex(s.word(key, ""));
  }

  interface Media {
    Object add(long begin, long tokens, byte[] hash);
  }

  static void media(Script s, Media media) {
    long[] begins = s.has("media_begins") ? s.longs("media_begins") : new long[0];
    byte[] hashes = bytes(s, "media_hashes");
    for (int i = 0; i < begins.length; i++) {
      media.add(begins[i], s.longs("media_tokens")[i], Arrays.copyOfRange(hashes, 32 * i, 32 * i + 32));
    }
  }

  private static void pageKeys(Script s) {
    PageKeys call = PageKeys.of(s.has("tokens") ? s.ints("tokens") : new int[0], s.integer("page_size", 0)).adapter(bytes(s, "adapter"))
        .salt(bytes(s, "salt"), s.integer("salt_begin", 0));
    if (s.has("fingerprint")) {
      call.fingerprint(bytes(s, "fingerprint"));
    }
    call.parent(s.has("parent") ? bytes(s, "parent") : null, s.integer("begin", 0));
    media(s, call::media);
    StringBuilder text = new StringBuilder();
    for (byte[] key : call.compute()) {
      text.append(HexFormat.of().formatHex(key));
    }
    s.results.put("keys", text);
  }

  private static Plan.Builder plan(Script s) {
    Plan.Builder plan = Plan.builder(s.context(), Plan.Mode.valueOf(s.word("mode", "").toUpperCase(Locale.ROOT)))
        .pageSize(s.integer("page_size")).numDraftTokens(s.integer("num_draft_tokens")).drafts(s.integer("num_steps"), s.integer("top_k"))
        .windowTokens(s.integer("window", 0)).chunkTokens(s.integer("chunk", 0)).numPoolPages(s.integer("num_pool_pages", 0));
    if (s.has("pad")) {
      plan.padValue(s.integer("pad"));
    }
    if (s.has("slots")) {
      plan.slots();
    }
    if (s.has("lengths_with_new")) {
      plan.lengthsWithNew();
    }
    if (s.has("graph")) {
      plan.graph(s.integer("max_rows"), s.integer("max_tokens"), s.integer("max_pages_per_row"));
    }
    List<String> arrays = List.of(s.word("arrays", "").split(","));
    return plan.arrays(arrays.contains("dense"), arrays.contains("csr"), arrays.contains("tokens"));
  }

  // ---- scripts -------------------------------------------------------------------------------------------------------

  private static String run(Script script, String line) {
    String[] words = line.split(" ");
    Consumer<Script> operation = OPERATIONS.get(words[0].startsWith("?") ? words[0].substring(1) : words[0]);
    if (operation == null) {
      return "FAILED unknown operation " + words[0];
    }
    script.line(words);
    try {
      operation.accept(script);
    } catch (KvcacheException e) {
      return e.statusName() + " index=" + e.index() + " required=" + e.required() + " available=" + e.available() + " group=" + e.group();
    } catch (RuntimeException | LinkageError e) {
      return "FAILED " + e.toString().replace('\n', ' ');
    }
    if (script.skipped) {
      return "skip";
    }
    StringBuilder answer = new StringBuilder("OK");
    script.results.forEach((key, value) -> answer.append(' ').append(key).append('=').append(value));
    return answer.toString();
  }

  public static void main(String[] paths) throws Exception {
    try (PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false)) {
      for (String path : paths) {
        out.println("script " + Path.of(path).getFileName());
        Script script = new Script();
        int number = 0;
        for (String line : Files.readAllLines(Path.of(path))) {
          number++;
          if (!line.isEmpty() && "#=".indexOf(line.charAt(0)) < 0) {
            out.println(number + " " + run(script, line));
            out.flush();
          }
        }
        script.close();
      }
    }
  }
}
