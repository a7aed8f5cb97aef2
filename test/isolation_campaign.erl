%% Random guests and random tenants, rented one after the other by several lanes at once, each with a
%% pool of its own. Rule: a lane stops at the first foreign byte, and tells the smallest case of it.
-module(isolation_campaign).
-import(proper_types, [list/1, oneof/1, frequency/1, range/2, resize/2, exactly/1, tuple/1]).

-export([run/1]).

-define(SHRINKING, 30).

%% Runs a campaign: #{requests, lanes => [pooling options], batch => tenants of a guest at most,
%% endings => how tenants end}. Answers what was proven, or an error with the smallest case of it.
run(#{requests := Requests, lanes := Lanes} = Campaign) ->
    Share = -(-Requests div length(Lanes)),
    Pids = [{wasmtime_test:caller(fun() -> lane(Number, Lane, Share, Campaign) end), Lane}
            || {Number, Lane} <- lists:zip(lists:seq(1, length(Lanes)), Lanes)],
    merged([{Lane, result(Pid)} || {Pid, Lane} <- Pids]).

result({Pid, Monitor}) ->
    receive
        {Pid, Result} -> Result;
        {'DOWN', Monitor, process, Pid, Reason} when Reason =/= normal -> {error, Reason}
    end.

merged(Results) ->
    case [{Lane, Error} || {Lane, {error, Error}} <- Results] of
        [] -> lists:foldl(fun({_, {ok, Told}}, Sum) -> add(Told, Sum) end, #{}, Results);
        Errors -> {error, Errors}
    end.

add(A, B) ->
    maps:fold(fun(Key, N, Sum) -> maps:update_with(Key, fun(M) -> M + N end, N, Sum) end, B, A).

%% ---- a lane ---------------------------------------------------------------------------------

%% A pool lives as long as a module of it, so one module stays; its slots go from guest to guest.
lane(Number, Lane, Share, Campaign) ->
    Pool = maps:merge(#{instances => 1, core_instances => Number, memories => 3, tables => 2,
                        max_memory => 64 * 1024 * 1024, verify => true}, Lane),
    Opts = #{allocator => pooling, pooling => Pool, opt_level => none},
    {ok, Keeper} = wasmtime:compile({wat, "(module (memory 1))"}, Opts),
    Counts = counters:new(4, []),
    Result = batches(Share, Opts, Counts, Campaign),
    %% Where the last owner died, its slots come back a little later.
    finished(Result, Counts, wasmtime_test:restored(Keeper)).

finished(ok, Counts, #{verify_failures := 0, resets := Resets, bytes_restored := Bytes}) ->
    {ok, #{verified => counters:get(Counts, 1), tenants => counters:get(Counts, 2),
           guests => counters:get(Counts, 3), resets => Resets, bytes_restored => Bytes}};
finished(ok, _, Info) -> {error, Info};
finished(Error, _, Info) -> {error, {Error, Info}}.

batches(Share, Opts, Counts, Campaign) ->
    case counters:get(Counts, 1) >= Share of
        true -> ok;
        false ->
            case proper:quickcheck(property(Opts, Counts, Campaign), settings(Share)) of
                true -> batches(Share, Opts, Counts, Campaign);
                Counterexample -> {counterexample, Counterexample, get(why)}
            end
    end.

%% Small shares must not run far beyond what was asked for.
settings(Share) -> [quiet, long_result, {numtests, max(1, Share div 2_000)}, {max_shrinks, 100}].

property(Opts, Counts, #{batch := Batch} = Campaign) ->
    Tenants = resize(Batch, list(resize(8, tenant(endings(Campaign))))),
    proper:forall({guest(), Tenants}, fun({Guest, Rented} = Case) ->
        counters:add(Counts, 3, 1),
        had_enough() orelse told(holds(Guest, Rented, Opts, Counts), Case)
    end).

holds(Guest, Rented, Opts, Counts) ->
    %% This PropEr cannot tell what was raised.
    try
        Ready = isolation_tenant:guest(Guest, Opts),
        lists:all(fun(Tenant) -> is_isolated(Ready, Tenant, Counts) end, Rented)
    catch Class:Reason:Stack ->
        why({Class, Reason, Stack})
    end.

%% The first case that failed is told at once: one that fails rarely may not shrink.
told(true, _) -> true;
told(false, Case) ->
    case get(failed_at) of
        undefined ->
            io:format("~nthe first case that failed: ~0tp~n~0tp~n", [get(why), Case]),
            put(failed_at, erlang:monotonic_time(second));
        _ -> ok
    end,
    false.

%% What was found after so many seconds of shrinking is the smallest one.
had_enough() ->
    case get(failed_at) of
        undefined -> false;
        Since -> erlang:monotonic_time(second) - Since > ?SHRINKING
    end.

is_isolated(Ready, {Look, _, _} = Tenant, Counts) ->
    counters:add(Counts, 2, 1),
    case isolation_tenant:run(Ready, Tenant) of
        ok when Look =:= blind -> true;
        ok -> counters:add(Counts, 1, 1), true;
        Foreign -> why(Foreign)
    end.

%% Why the last case failed, which is the smallest one in the end.
why(Why) -> put(why, Why), false.

%% ---- guests ---------------------------------------------------------------------------------

guest() ->
    map([{memories, resize(3, list(memory()))}, {tables, resize(2, list(table()))},
         {number, range(1, 1_000_000)}, {passive, {seed(), range(3, 300)}},
         {start, frequency([{4, []}, {1, list({range(0, 2), place(), byte()})}])}]).

memory() ->
    %% The restore of a large one moves to a dirty scheduler.
    Min = frequency([{10, range(1, 2)}, {5, range(0, 4)}, {1, range(17, 24)}]),
    Length = frequency([{4, range(1, 200)}, {1, range(4_000, 9_000)}]),
    map([{bits, oneof([32, 64])}, {min, Min}, {data, resize(4, list({place(), seed(), Length}))}]).

table() ->
    Functions = [oneof([0, 1, 2, 3, 4])],
    map([{bits, oneof([32, 64])}, {size, range(0, 8)},
         {elems, resize(3, list({range(0, 8), oneof([Functions, Functions ++ Functions])}))}]).

map(Parts) -> proper_types:bind(Parts, fun maps:from_list/1, false).

%% ---- tenants --------------------------------------------------------------------------------

tenant(Endings) ->
    Look = frequency([{6, whole}, {2, grown}, {1, segments}, {1, blind}]),
    tuple([Look, list(operation()), frequency(Endings)]).

operation() ->
    M = range(0, 5),
    Table = fun(What, Args) -> {table, What, M, Args} end,
    frequency([{6, {write, M, [place(), seed(), extent()]}}, {4, {store, M, [place(), word()]}},
               {3, {fill, M, [place(), byte(), far()]}}, {2, {copy, M, [place(), place(), far()]}},
               {2, {init, M, [place(), range(0, 9), range(0, 90)]}}, {2, {grow, M, [range(0, 3)]}},
               {6, {scatter, M, [range(1, 1 bsl 60), range(1, 40)]}}, {1, {globals, word()}}, {1, drop},
               {1, Table("set", [range(0, 9), range(0, 3)])},
               {1, Table("place", [range(0, 9), range(0, 2), range(0, 3)])},
               {1, Table("extend", [range(0, 3), range(0, 3)])},
               {1, Table("cover", [range(0, 9), range(0, 3), range(0, 4)])},
               {1, Table("move", [range(0, 9), range(0, 9), range(0, 4)])}]).

endings(#{endings := Endings}) -> Endings;
endings(_) ->
    Rare = [{trap, <<"deep">>}, {timeout, 1}, {running, interrupt}, {running, destroy},
            {running, kill}, {owner, exits}, {owner, killed}, {host, destroy}, {host, raise}],
    [{50, return}, {15, {trap, <<"trap">>}} | [{1, exactly(End)} || End <- Rare]].

%% An address, brought within a memory: anywhere, or at the border of a page of the host.
place() ->
    oneof([range(0, 1 bsl 24),
           proper_types:bind([range(1, 4_096), range(-8, 8)], fun([P, D]) -> P * 4_096 + D end, false)]).

extent() -> frequency([{6, range(1, 300)}, {1, range(4_000, 70_000)}]).

far() -> frequency([{12, extent()}, {1, range(70_000, 2_000_000)}]).

seed() -> range(1, 1_000_000).

byte() -> range(0, 255).

word() -> range(-(1 bsl 63), (1 bsl 63) - 1).
