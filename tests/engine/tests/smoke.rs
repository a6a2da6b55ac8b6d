use semel_support::*;
#[test]
fn smoke() {
    let mut world = World::new();
    let call = post("/count").id("a");
    let first = world.send(&call);
    first.is_executed(200);
    world.send(&call).replays(&first);
    assert_eq!(world.effects(), 1);
}
