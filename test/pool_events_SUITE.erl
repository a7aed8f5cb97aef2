%% What a pool counts and tells.
-module(pool_events_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(wasmtime_test, [mod/1]).
-import(wasmtime_pool_test, [start/1, start/2, stats/1, holders/2, go/1]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

suite() -> wasmtime_test:suite().

init_per_testcase(_, Config) ->
    process_flag(trap_exit, true),
    Config.

end_per_testcase(_, _) -> process_flag(trap_exit, false).

%% ---- statistics -----------------------------------------------------------------------------

%% The numbers are those of what happened; times are ordered, and of the right size.
t_stats(_) ->
    Pool = start(fun(X) -> timer:sleep(X), X end, #{size => 1}),
    ?assertMatch(#{state := open, size := 1, in_flight := 0, waiting := 0, done := 0, failed := 0,
                   overloaded := 0, latency := #{count := 0, p99 := 0, max := 0}}, stats(Pool)),
    [{ok, [1]} = wasmtime_pool:request(Pool, "ask", [1]) || _ <- lists:seq(1, 9)],
    {ok, [50]} = wasmtime_pool:request(Pool, "ask", [50]),
    {error, _} = wasmtime_pool:request(Pool, "trap", []),
    #{done := 10, failed := 1, latency := Latency, queue := Queue} = stats(Pool),
    #{count := 11, mean := Mean, p50 := P50, p90 := P90, p99 := P99, max := Max} = Latency,
    ?assert(1000 =< P50 andalso P50 =< P90 andalso P90 =< P99 andalso P99 =< Max),
    ?assert(45_000 =< Max andalso Mean =< Max andalso 5_000 =< Mean),
    ?assertMatch(#{count := 11}, Queue),
    ok = wasmtime_pool:stop(Pool).

%% A histogram's percentiles are within a bucket of the true ones.
t_histogram(_) ->
    Stats = wasmtime_pool_stats:new(),
    [wasmtime_pool_stats:time(Stats, latency, erlang:convert_time_unit(Us, microsecond, native))
     || Us <- lists:seq(1, 10_000)],
    #{count := 10_000, mean := Mean} = Summary = wasmtime_pool_stats:summary(Stats, latency),
    ?assertEqual(5000, Mean),
    [?assert(abs(maps:get(Key, Summary) - True) =< 0.1 * True, {Key, Summary})
     || {Key, True} <- [{p50, 5000}, {p90, 9000}, {p99, 9900}, {max, 10_000}]],
    ?assertMatch(#{count := 0, max := 0}, wasmtime_pool_stats:summary(Stats, queue)),
    ok = wasmtime_pool_stats:time(Stats, queue, -1),
    ok = wasmtime_pool_stats:time(Stats, queue, 1 bsl 70),
    ?assertMatch(#{count := 2, p50 := 0}, wasmtime_pool_stats:summary(Stats, queue)).

%% ---- telemetry ------------------------------------------------------------------------------

%% Each event comes with what the documentation says, in the process that the documentation says.
t_telemetry(_) ->
    Self = self(),
    Tell = fun(Name, Measurements, Meta) -> Self ! {event, self(), Name, Measurements, Meta} end,
    Pool = start(#{telemetry => Tell, name => told, size => 1}),
    {ok, [1]} = wasmtime_pool:request(told, "count", []),
    ?assertMatch([{Self, [request, start], [monotonic_time, system_time], #{pool := told, request := <<"count">>}},
                  {Self, [request, stop], [duration, monotonic_time, queue_time], #{pool := told, result := ok}}],
                 events()),
    {error, _} = wasmtime_pool:request(told, "trap", []),
    ?assertMatch([_, {_, [request, stop], _, #{result := error, error := #{kind := unreachable}}}], events()),
    ?assertError(oops, wasmtime_pool:run(told, fun(_) -> error(oops) end)),
    ?assertMatch([{_, _, _, #{request := function}},
                  {_, [request, exception], [duration, monotonic_time, queue_time],
                   #{kind := error, reason := oops, stacktrace := [_ | _], request := function}}], events()),
    Holders = holders(told, 1),
    _ = events(),
    {error, _} = wasmtime_pool:request(told, "count", [], #{queue_timeout => 0}),
    ?assertMatch([_, {Self, [overload], [queue_time, waiting], #{error := #{kind := overload}}},
                  {_, [request, stop], _, #{result := error, error := #{kind := overload}}}], events()),
    ok = wasmtime_pool:swap(told, mod(service)),
    ?assertMatch([{Self, [swap], [duration], #{pool := told}}], events()),
    [held] = go(Holders),
    _ = events(),
    {ok, 0} = wasmtime_pool:drain(told),
    receive {event, Pid, [wasmtime, pool, drain], #{duration := _, forced := 0}, #{pool := told}} ->
        ?assertNot(lists:member(Pid, [Self, Pool]))
    end,
    ok = wasmtime_pool:stop(told).

%% A callback of a drain may stop the pool, or take for ever: the pool answers all the same.
t_telemetry_of_a_drain_is_nobodys_burden(_) ->
    Self = self(),
    [begin
         Pool = start(#{telemetry => fun([_, _, drain], _, #{pool := P}) -> Do(P), Self ! done;
                                        (_, _, _) -> ok end}),
         ?assertEqual({ok, 0}, wasmtime_pool:drain(Pool, 0)),
         End(Pool)
     end || {Do, End} <- [{fun wasmtime_pool:stop/1, fun(_) -> receive done -> ok end end},
                          {fun(_) -> timer:sleep(infinity) end,
                           fun(Pool) -> ok = wasmtime_pool:stop(Pool, 10_000) end}]].

%% The events so far: process, name without its prefix, keys of the measurements, metadata.
events() ->
    receive
        {event, Pid, [wasmtime, pool | Name], Measurements, Meta} ->
            ?assert(lists:all(fun is_integer/1, maps:values(Measurements))),
            [{Pid, Name, lists:sort(maps:keys(Measurements)), Meta} | events()]
    after 0 -> []
    end.

%% A callback that raises, exits or throws hurts no request.
t_telemetry_fails(_) ->
    ok = logger:add_handler_filter(default, quiet, {fun(_, _) -> stop end, []}),
    [begin
         Pool = start(#{telemetry => fun(_, _, _) -> Fail() end}),
         ?assertEqual({ok, [1]}, wasmtime_pool:request(Pool, "count", [])),
         ?assertError(mine, wasmtime_pool:run(Pool, fun(_) -> error(mine) end)),
         ?assertEqual(ok, wasmtime_pool:swap(Pool, mod(service))),
         ?assertEqual({ok, 0}, wasmtime_pool:drain(Pool)),
         ok = wasmtime_pool:stop(Pool)
     end || Fail <- [fun() -> error(x) end, fun() -> exit(x) end, fun() -> throw(x) end]],
    ok = logger:remove_handler_filter(default, quiet).

%% Without an option events go to the telemetry application, when it is there.
t_telemetry_application(_) ->
    Pool = start(#{}),
    {ok, [1]} = wasmtime_pool:request(Pool, "count", []),
    ok = wasmtime_pool:stop(Pool),
    Forms = [{attribute, 1, module, telemetry}, {attribute, 1, export, [{execute, 3}]},
             {function, 1, execute, 3,
              [{clause, 1, [{var, 1, 'E'}, {var, 1, 'M'}, {var, 1, 'D'}], [],
                [{op, 1, '!', {atom, 1, telemetry_reader},
                  {tuple, 1, [{var, 1, 'E'}, {var, 1, 'M'}, {var, 1, 'D'}]}}]}]}],
    {ok, telemetry, Code} = compile:forms(Forms),
    {module, telemetry} = code:load_binary(telemetry, "telemetry.beam", Code),
    register(telemetry_reader, self()),
    try
        Told = start(#{}),
        {ok, [1]} = wasmtime_pool:request(Told, "count", []),
        receive {[wasmtime, pool, request, stop], #{duration := _}, #{pool := Told}} -> ok end,
        Silent = start(#{telemetry => none}),
        {ok, [1]} = wasmtime_pool:request(Silent, "count", []),
        ?assertEqual([], [E || {E, _, #{pool := P}} <- wasmtime_test:mailbox(), P =:= Silent]),
        ok = wasmtime_pool:stop(Told),
        ok = wasmtime_pool:stop(Silent)
    after
        unregister(telemetry_reader),
        code:delete(telemetry),
        code:purge(telemetry)
    end.
