//! Tables of steps and plans, read as a kernel would.
use crate::support::*;
use kvcache::*;

fn ints<'a>(tensor: &Tensor<'a>) -> &'a [i32] {
    tensor.as_slice().unwrap()
}

/// Slots that each query sees, by block table and lengths; causal is bottom-right.
fn seen(tables: &Tables<'_>) -> Vec<Vec<i32>> {
    let mut lists = vec![vec![]; tables.num_queries];
    let (begins, page) = (ints(&tables.cu_seqlens_q), tables.page_size as i32);
    for r in 0..tables.num_rows {
        let (n, pages) = (ints(&tables.cache_seqlens)[r], tables.block_table.unwrap().row(r).unwrap());
        let slots: Vec<_> = (0..n).map(|i| ints(&pages)[(i / page) as usize] * page + i % page).collect();
        for i in begins[r]..begins[r + 1] {
            let last = if tables.causal { n - (begins[r + 1] - 1 - i) } else { n };
            lists[i as usize].extend(&slots[ints(&tables.leftpad)[r] as usize..last.max(0) as usize]);
        }
    }
    lists
}

#[test]
fn tables_of_a_step() {
    let cache = Cache::new(&context(), &CacheConfig { storage: Storage::None, ..config() }).unwrap();
    let sequences = cache.add_many(2).unwrap();
    cache.begin(&Batch::new(&sequences, &[6, 3]), Stream::NONE).unwrap().end().unwrap();
    let step = cache.begin(&Batch::new(&sequences, &[1, 6]), Stream::NONE).unwrap();
    let options = TablesOptions { pad_value: Some(-7), ..TablesOptions::default() };
    let tables = step.tables(0, options).unwrap();
    let slots = step.tables(0, TablesOptions { slots: true, ..TablesOptions::default() }).unwrap();
    assert!(tables.causal && slots.causal);
    assert_eq!((tables.num_rows, tables.num_queries, tables.max_pages, slots.page_size), (2, 7, 3, 1));
    assert_eq!((tables.max_seqlen_q, tables.max_seqlen_k, tables.num_pages, tables.num_keys), (6, 9, 5, 16));
    assert_eq!(ints(&tables.cache_seqlens), [7, 9]);
    assert_eq!(ints(&tables.cu_seqlens_k), [0, 7, 16]);
    assert_eq!(ints(&tables.block_table.unwrap().row(0).unwrap())[2], -7);
    assert_eq!(ints(&tables.indptr.unwrap()), [0, 2, 5]);
    assert_eq!(ints(&tables.last_page_len.unwrap()), [3, 1]);
    assert_eq!(ints(&tables.positions.unwrap()), [6, 3, 4, 5, 6, 7, 8]);
    assert_eq!(ints(&tables.last_rows.unwrap()), [0, 6]);
    assert!(tables.sink_tokens.is_none() && tables.generation_word.is_none() && tables.generation == 0);
    assert_eq!(seen(&tables), seen(&slots));
    let new: Vec<i32> =
        tables.slot_mapping.unwrap().as_slice::<i64>().unwrap().iter().map(|slot| *slot as i32).collect();
    assert_eq!(seen(&tables).iter().map(|list| *list.last().unwrap()).collect::<Vec<_>>(), new);
    // The same again is the same memory; with another padding it would be written anew.
    assert_eq!(step.tables(0, options).unwrap().cache_seqlens.data(), tables.cache_seqlens.data());
    let failed = |result: Result<Tables<'_>>| result.unwrap_err().status();
    assert_eq!(failed(step.tables(0, TablesOptions::default())), Status::INVALID_ARGUMENT);
    assert_eq!(failed(step.tables(1, options)), Status::OUT_OF_RANGE);
    assert_eq!(failed(step.tables(usize::MAX, options)), Status::OUT_OF_RANGE);
    for part in [Part::Prefix, Part::Branches, Part::Encoder] {
        assert_eq!(failed(step.tables(0, TablesOptions { part, ..options })), Status::INVALID_ARGUMENT);
    }
    let mut step = step;
    step.release_tables();
    let few = Arrays { dense: false, csr: true, tokens: false };
    let tables = step.tables(0, TablesOptions { arrays: few, ..TablesOptions::default() }).unwrap();
    assert!(tables.block_table.is_none() && tables.slot_mapping.is_none() && tables.indices.is_some());
    let step = std::thread::spawn(move || step.end().map(|()| cache)).join().unwrap(); // a step moves with its tables
    let pages = step.unwrap().pages(sequences[1], 0).unwrap();
    assert_eq!(pages.len(), 3);
}

#[test]
fn a_tree_in_two_parts() {
    let cache = Cache::new(&context(), &CacheConfig { storage: Storage::None, ..config() }).unwrap();
    let sequence = cache.add().unwrap();
    cache.begin(&Batch::new(&[sequence], &[5]), Stream::NONE).unwrap().end().unwrap();
    let batch = Batch::new(&[sequence], &[3]).tree_parents(&[Batch::ROOT, 0, 0]);
    let step = cache.begin(&batch, Stream::NONE).unwrap();
    let part = |part| step.tables(0, TablesOptions { part, ..TablesOptions::default() });
    assert_eq!(part(Part::Whole).unwrap_err().status(), Status::INVALID_ARGUMENT);
    let (prefix, branches) = (seen(&part(Part::Prefix).unwrap()), seen(&part(Part::Branches).unwrap()));
    let slots = part(Part::Branches).unwrap().slot_mapping.unwrap().as_slice::<i64>().unwrap();
    let slots: Vec<_> = slots.iter().map(|slot| *slot as i32).collect();
    assert!(prefix.iter().all(|keys| keys.len() == 5 && *keys == prefix[0]));
    assert_eq!(branches, [vec![slots[0]], vec![slots[0], slots[1]], vec![slots[0], slots[2]]]);
}

#[test]
fn plans_of_every_mode() {
    let (context, pages) = (context(), [5, 9, 2, 0, 8, 1]);
    let slots: Vec<i32> = pages.iter().flat_map(|page| (0..4).map(move |i| page * 4 + i)).collect();
    let table = PlanTable::Pages(Tensor::new(&pages, &[2, 3]).unwrap());
    let entries = |row: usize, range: std::ops::Range<usize>| slots[row * 12..][range].to_vec();
    let new = |mode| {
        Plan::new(&context, &PlanConfig { mode, page_size: 4, num_pool_pages: 10, ..Default::default() }).unwrap()
    };
    let lengths = Tensor::new(&[7, 2], &[2]).unwrap();

    let mut decode = new(PlanMode::Decode);
    assert_eq!(decode.build(&PlanStep::new(lengths, table), Stream::NONE).unwrap(), 1);
    assert_eq!(seen(&decode.tables(0, Part::Whole).unwrap()), [entries(0, 0..8), entries(1, 0..3)]);
    let grew = PlanStep { rows_grew: true, ..PlanStep::new(Tensor::new(&[8i64, 3], &[2]).unwrap(), table) };
    assert_eq!(decode.build(&grew, Stream::NONE).unwrap(), 2);
    assert_eq!(seen(&decode.tables(0, Part::Whole).unwrap()), [entries(0, 0..9), entries(1, 0..4)]);

    let mut extend = new(PlanMode::Extend);
    let step = PlanStep {
        append_lengths: Some(Tensor::new(&[1, 2], &[2]).unwrap()),
        rows: Some(Tensor::new(&[1, -1], &[2]).unwrap()),
        table: PlanTable::Slots(Tensor::new(&slots, &[2, 12]).unwrap()),
        ..PlanStep::new(lengths, table)
    };
    extend.build(&step, Stream::NONE).unwrap();
    let tables = extend.tables(0, Part::Whole).unwrap();
    assert_eq!(seen(&tables), [entries(1, 0..8), vec![], vec![]]);
    assert_eq!(tables.slot_mapping.unwrap().as_slice::<i64>().unwrap(), [i64::from(slots[12 + 7]), -1, -1]);

    let mut verify = new(PlanMode::Verify { num_draft_tokens: 2 });
    let parents = [-1, -1, -1, 0];
    let step = PlanStep { tree_parents: Some(Tensor::new(&parents, &[4]).unwrap()), ..PlanStep::new(lengths, table) };
    verify.build(&step, Stream::NONE).unwrap();
    let (prefix, branches) = (verify.tables(0, Part::Prefix).unwrap(), verify.tables(0, Part::Branches).unwrap());
    assert_eq!(seen(&prefix), [entries(0, 0..7), entries(0, 0..7), entries(1, 0..2), entries(1, 0..2)]);
    assert_eq!(seen(&branches), [entries(0, 7..8), entries(0, 8..9), entries(1, 2..3), entries(1, 2..4)]);

    let mut draft = new(PlanMode::DraftDecode { num_steps: 3, top_k: 1 });
    draft.build(&PlanStep::new(lengths, table), Stream::NONE).unwrap();
    for s in 0..3 {
        assert_eq!(seen(&draft.tables(s, Part::Whole).unwrap()), [entries(0, 0..8 + s), entries(1, 0..3 + s)]);
    }
    assert_eq!(draft.tables(3, Part::Whole).unwrap_err().status(), Status::OUT_OF_RANGE);
    assert_eq!(draft.tables(0, Part::Prefix).unwrap_err().status(), Status::INVALID_ARGUMENT);
    std::thread::spawn(move || drop(draft)).join().unwrap();
}

#[test]
fn a_plan_for_graphs_keeps_its_addresses() {
    let (context, pages) = (context(), [5, 9, 2, 0, 1, 1, 1, 1]);
    let config = PlanConfig {
        page_size: 4,
        graph: Some(GraphCapacity { max_rows: 3, max_tokens: 0, max_pages_per_row: 2 }),
        arrays: Arrays { csr: false, ..Arrays::default() },
        lengths_with_new: true,
        ..PlanConfig::default()
    };
    let mut plan = Plan::new(&context, &config).unwrap();
    let table = PlanTable::Pages(Tensor::new(&pages, &[4, 2]).unwrap());
    let build = |plan: &mut Plan, lengths: &[i32]| {
        let lengths = Tensor::new(lengths, &[lengths.len()]).unwrap();
        plan.build(&PlanStep::new(lengths, table), Stream::NONE)
    };
    let first = build(&mut plan, &[6, 3]).unwrap();
    let tables = plan.tables(0, Part::Whole).unwrap();
    let (address, generation) = (tables.cache_seqlens.data(), tables.generation);
    assert_eq!((tables.num_rows, tables.max_pages, generation, tables.indptr.is_none()), (2, 2, first, true));
    assert_eq!(ints(&tables.cache_seqlens), [6, 3, 0]);
    assert_eq!(tables.generation_word.unwrap().as_slice::<i64>().unwrap(), [first as i64]);
    plan.check(first).unwrap();
    let second = build(&mut plan, &[8]).unwrap();
    assert_eq!(plan.check(first).unwrap_err().status(), Status::STALE);
    plan.check(second).unwrap();
    let tables = plan.tables(0, Part::Whole).unwrap();
    assert_eq!((tables.cache_seqlens.data(), ints(&tables.cache_seqlens)), (address, &[8, 0, 0][..]));
    let error = build(&mut plan, &[1, 1, 1, 1]).unwrap_err();
    assert!(matches!(&error, Error::Capacity(failure) if (failure.required, failure.available) == (4, 3)), "{error:?}");
    let error = plan.tables(0, Part::Whole).unwrap_err(); // stale until a build succeeds
    assert!(matches!(&error, Error::State(failure) if failure.status == Status::STALE), "{error:?}");
    assert_eq!(plan.check(second).unwrap_err().status(), Status::STALE);
    build(&mut plan, &[1]).unwrap();
}

#[test]
fn bad_input() {
    let context = context();
    let refused = |config: PlanConfig, status| assert_eq!(Plan::new(&context, &config).unwrap_err().status(), status);
    let config = PlanConfig::default();
    refused(PlanConfig { mode: PlanMode::Verify { num_draft_tokens: 0 }, ..config }, Status::OUT_OF_RANGE);
    refused(PlanConfig { page_size: usize::MAX, ..config }, Status::OUT_OF_RANGE);
    refused(PlanConfig { window: 5, chunk: 5, ..config }, Status::INVALID_ARGUMENT);
    refused(PlanConfig { graph: Some(GraphCapacity::default()), ..config }, Status::OUT_OF_RANGE);

    let mut plan = Plan::new(&context, &PlanConfig { page_size: 4, num_pool_pages: 10, ..config }).unwrap();
    assert_eq!(plan.tables(0, Part::Whole).unwrap_err().status(), Status::STALE);
    assert_eq!(plan.check(0).unwrap_err().status(), Status::STALE);
    let mut fails = |lengths: &[i32], table: &[i32], shape: &[usize], change: &dyn Fn(&mut PlanStep<'_>)| {
        let lengths = Tensor::new(lengths, &[lengths.len()]).unwrap();
        let mut step = PlanStep::new(lengths, PlanTable::Pages(Tensor::new(table, shape).unwrap()));
        change(&mut step);
        let error = plan.build(&step, Stream::NONE).unwrap_err();
        assert!(error.message().starts_with("Plan::build: "), "{error}");
        (error.status(), error.index())
    };
    let keep = |_: &mut PlanStep<'_>| ();
    assert_eq!(fails(&[3, 3], &[1, 10], &[2, 1], &keep), (Status::OUT_OF_RANGE, Some(1)));
    assert_eq!(fails(&[3, 4], &[1, 2], &[2, 1], &keep), (Status::OUT_OF_RANGE, Some(1))); // a second page is needed
    assert_eq!(fails(&[3, -1], &[1, 2], &[2, 1], &keep), (Status::OUT_OF_RANGE, Some(1)));
    assert_eq!(fails(&[3, 3], &[1, 2], &[2], &keep).0, Status::RANK);
    assert_eq!(fails(&[3, 3], &[1], &[1, 1], &keep).0, Status::SHAPE);
    let rows: &[i32] = &[0, 7];
    assert_eq!(
        fails(&[3, 3], &[1, 2], &[2, 1], &|step| step.rows = Some(Tensor::new(rows, &[2]).unwrap())),
        (Status::OUT_OF_RANGE, Some(1))
    );
    let extra: &[i32] = &[1, 1];
    let append = |step: &mut PlanStep<'_>| step.append_lengths = Some(Tensor::new(extra, &[2]).unwrap());
    assert_eq!(fails(&[3, 3], &[1, 2], &[2, 1], &append).0, Status::INVALID_ARGUMENT);
}
