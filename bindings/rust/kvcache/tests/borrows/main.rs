//! The safe layer over a library of Rust (`fake.rs`), so that Miri, which cannot call C, sees every pointer that this
//! crate hands over, how long it lives, and what is not released: `bash scripts/miri.sh`. Without Miri it is a quick test
//! of the same calls.
#![cfg(feature = "dynamic")]
mod fake;

use fake::{install, GRAPHS, TABLE};
use kvcache::*;

fn cache() -> Cache {
    install();
    let context = Context::new(ContextConfig::new().simd("reference").log(|_, text| assert_eq!(text, "gone"))).unwrap();
    let long = LongRope { short_factors: vec![1.0, 2.0], long_factors: vec![3.0], ..LongRope::default() };
    let layer = Layer { k_scales: vec![1.0, 2.0], v_scales: vec![3.0, 4.0], ..Layer::default() };
    let scaled = Layer { rope: Rope::on_append(1e4).scaled(RopeScaling::LongRope(long)), ..Layer::default() };
    let states = vec![State { dtype: DType::F32, shape: vec![2, 3], ..State::default() }; 2];
    let layers = vec![layer, scaled, Layer { states, ..Layer::default() }];
    let groups = vec![Group::full(), Group::sliding(4)];
    Cache::new(&context, &CacheConfig { layers, groups, ..CacheConfig::default() }).unwrap()
}

#[test]
fn contexts_call_back() {
    install();
    let config = ContextConfig::new().parallel_for(|n, item| (0..n).rev().for_each(item));
    let context = Context::new(config).unwrap();
    assert_eq!(context.describe().unwrap(), "{\"fake\": 1}");
    let clone = context.clone();
    drop(context);
    std::thread::spawn(move || drop(clone)).join().unwrap();
    sys::dynamic::load(Some("no such file".as_ref())).unwrap(); // what was installed stays
}

#[test]
fn arrays_of_ids() {
    let cache = cache();
    let sequences = cache.add_many(3).unwrap();
    assert_eq!(cache.fork(&sequences, Stream::NONE).unwrap(), [Seq(101), Seq(102), Seq(103)]);
    assert_eq!(cache.fork_at(&[(Seq(5), 2)], Stream::NONE).unwrap(), [Seq(105)]);
    assert_eq!(cache.pages(Seq(1), 0).unwrap(), [None, Some(0), Some(1)]);
    assert_eq!(cache.lengths(&sequences).unwrap(), [6, 6, 6]);
    let error = cache.lengths(&[Seq(1), Seq(99)]).unwrap_err();
    assert_eq!((error.message(), error.status()), ("fake: no", Status::STALE_ID));
    let error = cache.add_many(1000).unwrap_err();
    assert!(matches!(&error, Error::Capacity(failure) if failure.required == 1000), "{error}");
    let copies = cache.take_copies().unwrap();
    assert_eq!(copies, [TokenCopy { source_slot: 1, target_slot: 2, group: 0, count: 3 }; 3]);
}

#[test]
fn a_step_and_what_it_lends() {
    let cache = cache();
    let batch = Batch::new(&[Seq(1), Seq(2)], &[2, 1]).tree_parents(&[-1, 0, -1]).span_ids(&[0, 1, 1]);
    let step = cache.begin(&batch, Stream::NONE).unwrap();
    drop(cache); // the step keeps it
    let (q, numbers) = (vec![1f32; 12], vec![2f32; 24]);
    let (mut out, mut lse) = (vec![0f32; 12], vec![0f32; 6]);
    let strided = Tensor::strided(&numbers[1..], &[3, 1, 2], &[4, 2, 1]).unwrap();
    let attend = Attend {
        lse: Some(TensorMut::new(&mut lse, &[3, 2]).unwrap()),
        sinks: Some(Tensor::new(&numbers, &[2]).unwrap()),
        ..Attend::new(
            Tensor::new(&q, &[3, 2, 2]).unwrap(),
            strided,
            strided,
            TensorMut::strided(&mut out, &[3, 2, 2], &[2, 6, 1]).unwrap(),
        )
    };
    let moved = Box::new(attend); // what it points to does not move with it
    step.attend(0, &moved).unwrap();
    step.attend(0, &moved).unwrap();
    drop(moved);
    assert!(out.iter().chain(&lse).all(|x| x.to_ne_bytes() == [7; 4]));
    step.append(0, &Append::new(strided, strided)).unwrap();
    assert_eq!((step.positions().unwrap().len(), step.last_rows().unwrap()), (6, vec![3, 1]));
    let tables = step.tables(0, TablesOptions::default()).unwrap();
    let again = step.tables(0, TablesOptions::default()).unwrap();
    let row = tables.block_table.unwrap().row(1).unwrap().as_slice::<i32>().unwrap();
    assert_eq!((row, again.cache_seqlens.as_slice::<i32>().unwrap()), (&TABLE[3..], &TABLE[..2]));
    let mut step = std::thread::spawn(move || step).join().unwrap();
    step.release_tables();
    step.end().unwrap();
}

#[test]
fn a_graph_lives_as_long_as_its_steps() {
    let cache = cache();
    let graph = |max_tokens| Graph::new(&cache, &GraphConfig { max_tokens, ..GraphConfig::default() }).unwrap();
    let (graph, closed) = (graph(3), graph(4));
    let step = cache.begin(&Batch::new(&[Seq(1)], &[2]).graph(&graph), Stream::NONE).unwrap();
    let (numbers, mut out) = (vec![2f32; 4], vec![0f32; 4]);
    let tensor = Tensor::new(&numbers, &[2, 1, 2]).unwrap();
    graph.append(0, &Append::new(tensor, tensor)).unwrap();
    graph.attend(0, &Attend::stored(tensor, TensorMut::new(&mut out, &[2, 1, 2]).unwrap())).unwrap();
    assert!(out.iter().all(|x| x.to_ne_bytes() == [7; 4]));
    closed.clone().close().unwrap();
    assert_eq!(closed.close().unwrap_err().status(), Status::STALE_ID);
    assert_eq!(*GRAPHS.lock().unwrap(), [1003]);
    drop((graph, closed, cache));
    assert_eq!(*GRAPHS.lock().unwrap(), [1003]);
    std::thread::spawn(move || drop(step)).join().unwrap();
    assert!(GRAPHS.lock().unwrap().is_empty());
}

#[test]
fn failures_release_everything() {
    let cache = cache();
    let error = cache.begin(&Batch::new(&[Seq(1)], &[9]), Stream::NONE).unwrap_err();
    assert!(matches!(error, Error::OutOfPages { required: 9, .. }));
    let pool = |n: usize| Pools::Kv(ManagedTensor::from_vec(vec![0f32; n], &[n]).unwrap());
    let config = CacheConfig { layers: vec![Layer::default(); 2], page_size: 13, ..CacheConfig::default() };
    assert!(Cache::with_pools(cache.context(), &config, vec![(1, pool(3))]).is_err());
    assert!(Cache::with_pools(cache.context(), &config, vec![(2, pool(3))]).is_err());
    let config = CacheConfig { page_size: 4, ..config };
    let separate = Pools::Separate {
        k: ManagedTensor::from_vec_strided(vec![0u8; 9], &[2, 2], &[5, 2]).unwrap(),
        v: ManagedTensor::from_vec(vec![0i64; 3], &[3]).unwrap(),
    };
    let adopted = Cache::with_pools(cache.context(), &config, vec![(0, pool(4)), (1, separate)]).unwrap();
    let step = adopted.begin(&Batch::new(&[Seq(1)], &[1]), Stream::NONE).unwrap();
    drop((cache, adopted));
    drop(step);
}

#[test]
fn plans_lend_until_the_next_build() {
    let cache = cache();
    let mut plan = Plan::new(cache.context(), &PlanConfig::default()).unwrap();
    drop(cache); // the plan keeps the context
    let (lengths, pages) = (vec![1i64, 2], vec![1, 2, 3, 4]);
    let table = PlanTable::Pages(Tensor::strided(&pages, &[2, 1], &[2, 1]).unwrap());
    for build in 1..3 {
        let step = PlanStep::new(Tensor::new(&lengths, &[2]).unwrap(), table);
        assert_eq!(plan.build(&step, Stream::NONE).unwrap(), 5);
        let tables = plan.tables(0, Part::Whole).unwrap();
        assert_eq!((tables.generation, tables.leftpad.as_slice::<i32>().unwrap()), (build, &TABLE[..2]));
    }
    std::thread::spawn(move || drop(plan)).join().unwrap();
}

#[test]
fn stateless_calls_write_what_they_may() {
    let cache = cache();
    let (numbers, ints) = (vec![1f32; 8], [0, 1]);
    let mut kv = vec![0f32; 16];
    let (mut out, shape) = ([0f32; 4], [2, 1, 1, 2]);
    let (k, v) = TensorMut::new(&mut kv, &[2, 2, 1, 4]).unwrap().split_at(3, 2).unwrap();
    let new = Tensor::new(&numbers, &shape).unwrap();
    let call = FlashAttn {
        block_table: Some(Tensor::new(&ints, &[2, 1]).unwrap()),
        rotary: Some((new, new)),
        ..FlashAttn::append(new, (k, v), (new, new), TensorMut::new(&mut out, &shape).unwrap())
    };
    flash_attn_with_kvcache(cache.context(), &call, Stream::NONE).unwrap();
    let (k, v) = kv.split_at(8);
    let (k, v) = (Tensor::new(k, &[2, 2, 1, 2]).unwrap(), Tensor::new(v, &[2, 2, 1, 2]).unwrap());
    let call = FlashAttn::new(new, k, v, TensorMut::new(&mut out, &shape).unwrap());
    flash_attn_with_kvcache(cache.context(), &call, Stream::NONE).unwrap();
    let (k, v) = kv.split_at_mut(8);
    let caches = (TensorMut::new(k, &[2, 2, 1, 2]).unwrap(), TensorMut::new(v, &[2, 2, 1, 2]).unwrap());
    let call = AppendSlots::new((new, new), caches, Tensor::new(&ints, &[2]).unwrap());
    append_slots(cache.context(), &call, Stream::NONE).unwrap();
    let parts = [(new.row(0).unwrap(), new.row(1).unwrap()); 2];
    let mut out = TensorMut::new(&mut out, &[1, 1, 2]).unwrap();
    merge_states(cache.context(), &parts, &mut out.reborrow(), None, Stream::NONE).unwrap();
    merge_states(cache.context(), &parts, &mut out, None, Stream::NONE).unwrap();
}

#[test]
fn tensors_out_and_in() {
    let cache = cache();
    let exported = cache.export(Seq(1), 0, 1..4, Stream::NONE).unwrap();
    let k = exported.k.unwrap();
    let view = k.view().unwrap();
    cache.import(Seq(1), &Import { k: &[Some(view), None], ..Import::default() }, Stream::NONE).unwrap();
    assert_eq!((view.shape(), k.as_slice::<f32>().unwrap()), (vec![3, 1, 2], &[1f32; 6][..]));
    drop(cache);
    // SAFETY: ours, through DLPack and back.
    let k = unsafe { ManagedTensor::from_raw(k.into_raw()) }.unwrap();
    std::thread::spawn(move || drop(k)).join().unwrap();
}

#[test]
fn tokens_are_borrowed_for_a_call() {
    let cache = cache();
    let tokens = vec![1, 2, 3];
    let query = PrefixQuery { salt: u64::MAX, salt_begin: 4, ..PrefixQuery::new(&tokens[1..]) };
    let hit = PrefixHit { tokens: 5, known_tokens: 4, ..PrefixHit::default() };
    assert_eq!(cache.match_prefix(&query).unwrap(), hit);
    assert_eq!(cache.attach_prefix(&query, Stream::NONE).unwrap(), (Seq(9), hit));
    assert_eq!(cache.pin_prefix(&query).unwrap(), (PrefixPin(5), hit));
    let options = PrefixOptions { time_to_live: u64::MAX, ..PrefixOptions::default() };
    let published = cache.publish_prefix(Seq(1), &query, &options).unwrap();
    assert_eq!((published.known_tokens, published.pages_added), (5, i64::MAX as usize));
    assert_eq!(cache.publish_prefix(Seq(99), &query, &options).unwrap_err().status(), Status::STALE_ID);
    cache.set_prefix_priority(&query, 5, 0).unwrap();
    let empty = PrefixQuery::default();
    assert_eq!((cache.match_prefix(&empty).unwrap().tokens, cache.drop_prefix(&empty).unwrap()), (0, 0));
}
