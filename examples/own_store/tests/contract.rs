//! The store keeps the contract, although requests and answers are lost and callers die.

use own_store::List;
use stillpoint_sim::suite::store;

#[tokio::test(flavor = "multi_thread")]
async fn the_list_keeps_the_contract() {
    let counts = store::holds(List::default).await;
    assert!(counts.kills > 0 && counts.lost_answers > 0, "{counts:?}");
}
