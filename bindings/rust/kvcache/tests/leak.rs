//! 10,000 contexts, caches, steps and exports come and go in bounded memory. Alone in its process: others would allocate.
use kvcache::*;

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn round() {
    let context = Context::new(ContextConfig::new().threads(2).log(|_, _| ())).unwrap();
    let layer = Layer { q_heads: 2, kv_heads: 1, head_dim: 16, ..Layer::default() };
    let config = CacheConfig { layers: vec![layer; 2], capacity: Capacity::Tokens(64), ..CacheConfig::default() };
    let cache = Cache::new(&context, &config).unwrap();
    let sequence = cache.add().unwrap();
    let numbers = [0.5f32; 32];
    let mut out = [0f32; 32];
    let step = cache.begin(&Batch::new(&[sequence], &[1]), Stream::NONE).unwrap();
    for layer in 0..2 {
        let (q, kv) = (Tensor::new(&numbers, &[1, 2, 16]).unwrap(), Tensor::new(&numbers, &[1, 1, 16]).unwrap());
        step.attend(layer, &Attend::new(q, kv, kv, TensorMut::new(&mut out, &[1, 2, 16]).unwrap())).unwrap();
    }
    step.end().unwrap();
    let exported = cache.export(sequence, 1, .., Stream::NONE).unwrap();
    let pool = cache.export_pool(0, Pool::K, Stream::NONE).unwrap();
    let dropped = cache.begin(&Batch::new(&[sequence], &[1]), Stream::NONE).unwrap();
    assert!(cache.length(Seq(99)).is_err());
    let table = PlanTable::Pages(Tensor::new(&[0, 1], &[1, 2]).unwrap());
    let mut plan = Plan::new(&context, &PlanConfig::default()).unwrap();
    plan.build(&PlanStep::new(Tensor::new(&[3], &[1]).unwrap(), table), Stream::NONE).unwrap();
    let given = ManagedTensor::from_vec(vec![0f32; 4 * 2 * 16 * 16], &[4, 2, 1, 16, 16]).unwrap();
    let layers = vec![Layer { q_heads: 1, kv_heads: 1, head_dim: 16, ..Layer::default() }];
    let config = CacheConfig { layers, capacity: Capacity::Pages(4), ..CacheConfig::default() };
    let adopted = Cache::with_pools(&context, &config, vec![(0, Pools::Kv(given))]).unwrap();
    let sequence = adopted.add().unwrap();
    let step = adopted.begin(&Batch::new(&[sequence], &[1]), Stream::NONE).unwrap();
    assert_eq!(step.tables(0, TablesOptions::default()).unwrap().num_rows, 1);
    let refused = ManagedTensor::from_vec(vec![0f32; 9], &[9]).unwrap();
    assert!(Cache::with_pools(&context, &config, vec![(0, Pools::Kv(refused))]).is_err());
    drop((context, cache, dropped, exported, pool, plan, adopted, step));
}

#[test]
fn ten_thousand_rounds_leave_nothing_behind() {
    (0..500).for_each(|_| round());
    let before = resident_kib();
    (0..10_000).for_each(|_| round());
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 2048, "{grown} KiB more after 10,000 rounds"); // 200 bytes a round would show
}
