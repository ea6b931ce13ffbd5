//! Joins that are defined again: which definition is the same, and what becomes of one that is not (JOIN-7).

use super::script::check;

#[test]
fn what_made_a_join_alters_it_too() {
    check(
        "channel orders
         channel orders.eu
         channel other
         join /orders->orders.eu@here name=x->y
         view x->y source=orders destination=orders.eu max_hops=10
         join /orders->orders.eu@here name=x->y
         join /orders->orders.eu@here name=x->y max_hops=3 => JOIN_EXISTS
         alter x->y source=/orders destination=orders.eu@here max_hops=3
         view x->y source=orders destination=orders.eu max_hops=3
         alter x->y destination=other@here => JOIN_EXISTS
         alter x->y destination=orders.eu@there => JOIN_EXISTS
         alter x->y source=other => JOIN_EXISTS
         crash
         join orders->orders.eu name=x->y max_hops=3
         publish orders 1
         stored orders.eu = 1",
    );
}
