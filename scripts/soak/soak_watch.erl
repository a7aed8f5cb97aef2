%% What a node holds while nothing runs, and whether that grows.
%% Rule: a sample is taken at rest, so what is counted must come back to the same number each time; only
%% memory, which allocators keep, is judged by its trend.
-module(soak_watch).

-export([sample/1, verdict/1, line/1]).
-export_type([sample/0]).

%% Counts as below; `live' are native objects by kind, but for parked threads, which end by themselves;
%% `rss' and `beam' in bytes; `slots' in use and `verify_failures' of the pools of these modules.
-type sample() :: #{live := #{atom() => non_neg_integer()}, threads := integer(), fds := integer(),
                    slots := integer(), verify_failures := integer(), rss := integer(), beam := integer(),
                    processes := integer(), ports := integer(), tables := integer(), atoms := integer(),
                    messages := integer()}.

-define(COUNTS, [threads, fds, processes, ports, tables, atoms, messages]).
%% A trend is one that chance gives once in some ten thousand runs, and adds this share of the memory.
-define(SURE, 4).
-define(SHARE, 0.05).

%% @doc A look at this node, once what ended has settled.
-spec sample([wasmtime:wasm_module()]) -> sample().
sample(Pools) ->
    Live = wasmtime_test:settled(),
    {Threads, Fds} = wasmtime_test:resources(),
    Infos = [wasmtime:pool_info(Mod) || Mod <- Pools],
    #{live => maps:remove(threads_parked, Live), threads => Threads - maps:get(threads_parked, Live),
      fds => Fds, slots => lists:sum([Used || #{used := Used} <- Infos]),
      verify_failures => lists:sum([N || #{verify_failures := N} <- Infos]),
      rss => rss(), beam => erlang:memory(total),
      processes => erlang:system_info(process_count), ports => erlang:system_info(port_count),
      tables => length(ets:all()), atoms => erlang:system_info(atom_count),
      messages => lists:sum([N || Pid <- processes(), {_, N} <- [process_info(Pid, message_queue_len)]])}.

rss() ->
    {ok, Text} = file:read_file("/proc/self/status"),
    {match, [KiB]} = re:run(Text, "VmRSS:\\s+(\\d+) kB", [{capture, all_but_first, list}]),
    1024 * list_to_integer(KiB).

%% @doc Judges samples, oldest first. The first quarter (two at least) is the warm-up: pools, caches and
%% tables fill. After it no count may pass what the warm-up saw, live objects are the same each time, and
%% memory has no trend.
-spec verdict([sample()]) -> ok | {failed, [iodata()]}.
verdict(Samples) ->
    {Warm, Rest} = lists:split(min(length(Samples), max(2, length(Samples) div 4)), Samples),
    case slots(Samples) ++ live(Warm, Rest) ++ counts(Warm, Rest) ++ memory(Rest) of
        [] -> ok;
        Failures -> {failed, Failures}
    end.

slots(Samples) ->
    [io_lib:format("~s: ~b", [Key, N]) || Sample <- Samples, Key <- [slots, verify_failures],
                                          N <- [map_get(Key, Sample)], N =/= 0].

live(Warm, Rest) ->
    #{live := First} = lists:last(Warm),
    [io_lib:format("native objects left at rest: ~tp instead of ~tp", [Live, First])
     || #{live := Live} <- Rest, Live =/= First].

counts(Warm, Rest) ->
    [io_lib:format("~s grew from ~b to ~b", [Key, Most, N])
     || Key <- ?COUNTS, Most <- [lists:max([map_get(Key, S) || S <- Warm])],
        N <- [lists:max([0 | [map_get(Key, S) || S <- Rest]])], N > Most].

%% What allocators keep goes up and down by more than a leak adds between two looks. So memory grew when
%% its trend (least squares) is up by more than chance, and what it adds over all these looks is not small.
memory(Rest) when length(Rest) < 8 -> [];
memory(Rest) ->
    [io_lib:format("~s grew by ~.1f MiB (give or take ~.1f)", [Key, mib(Added), mib(Error)])
     || Key <- [rss, beam], Values <- [[map_get(Key, S) || S <- Rest]],
        {Added, Error} <- [trend(Values)],
        Added > ?SURE * Error, Added > ?SHARE * lists:sum(Values) / length(Values)].

%% How much the fitted line rises from the first value to the last, and the standard error of that.
trend(Values) ->
    N = length(Values),
    {MeanX, MeanY} = {(N - 1) / 2, lists:sum(Values) / N},
    Pairs = [{X - MeanX, Y - MeanY} || {X, Y} <- lists:zip(lists:seq(0, N - 1), Values)],
    Width = lists:sum([X * X || {X, _} <- Pairs]),
    Slope = lists:sum([X * Y || {X, Y} <- Pairs]) / Width,
    Scatter = lists:sum([math:pow(Y - Slope * X, 2) || {X, Y} <- Pairs]),
    {Slope * (N - 1), math:sqrt(Scatter / (N - 2) / Width) * (N - 1)}.

%% @doc A sample in a line.
-spec line(sample()) -> iodata().
line(#{rss := Rss, threads := Threads, fds := Fds, slots := Slots, live := Live, processes := Processes}) ->
    io_lib:format("rss ~.1f MiB, ~b threads, ~b fds, ~b slots, ~b native objects, ~b processes",
                  [mib(Rss), Threads, Fds, Slots, lists:sum(maps:values(Live)), Processes]).

mib(Bytes) -> Bytes / 1048576.
