%% What a host call costs: a guest that does nothing but call its host.
-module(bench_host_call).

-export([run/2]).

-import(bench_stats, [now_ns/0, us/1, median/1]).

%% Host calls of one call, so that the call itself does not count.
-define(CALLS, 200).
-define(CALLERS, 14).

-define(GUEST,
        "(module (import \"host\" \"echo\" (func $echo (param i32) (result i32)))"
        " (func (export \"calls\") (param $n i32) (result i32) (local $i i32)"
        "  (loop $next"
        "   (local.set $i (i32.add (call $echo (local.get $i)) (i32.const 1)))"
        "   (br_if $next (i32.lt_u (local.get $i) (local.get $n))))"
        "  (local.get $i)))").

%% @doc Microseconds of one host call, as one caller sees it: alone, and beside 13 others.
-spec run(thread | scheduler, pos_integer()) -> #{idle | callers_14 => float()}.
run(Runner, Seconds) ->
    Mod = bench_guest:must("the guest of host calls", wasmtime:compile({wat, ?GUEST})),
    Caller = fun(Go) -> caller(Mod, Runner, Seconds, Go) end,
    [Idle, Busy] = [lists:append(bench_concurrent:together(N, Caller)) || N <- [1, ?CALLERS]],
    #{idle => us(median(Idle) / ?CALLS), callers_14 => us(median(Busy) / ?CALLS)}.

caller(Mod, Runner, Seconds, Go) ->
    Echo = fun(_, [N]) -> {ok, [N]} end,
    Options = #{runner => Runner, imports => #{{<<"host">>, <<"echo">>} => Echo}},
    Inst = bench_guest:instantiate(Mod, Options),
    _ = calls(Inst),
    Samples = until(Go() + Seconds * 1_000_000_000, Inst, []),
    ok = wasmtime:destroy(Inst),
    Samples.

until(End, Inst, Samples) ->
    Next = [calls(Inst) | Samples],
    case now_ns() < End of
        true -> until(End, Inst, Next);
        false -> Next
    end.

calls(Inst) ->
    Start = now_ns(),
    case wasmtime:call(Inst, <<"calls">>, [?CALLS]) of
        {ok, [?CALLS]} -> now_ns() - Start;
        Other -> bench_guest:fail("the guest of host calls answered ~tp", [Other])
    end.
