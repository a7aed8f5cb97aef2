%% What the suites of faults share: random moments, kills that are counted, and what is left behind.
%% Rule: nothing here knows which fault it is.
-module(fault_test).

-export([storm/3, moment/0, kill/2, ended/1, returns/1, start_node/2]).

-define(WORKERS, 8).

%% Does Round(Kills) so many times in processes of their own, and counts what is left. Says how many
%% kills found their victim alive; Least must have.
storm(Rounds, Least, Round) ->
    Kills = counters:new(1, []),
    returns(fun() ->
        counters:put(Kills, 1, 0),
        Workers = [spawn_monitor(fun() -> [Round(Kills) || _ <- share(Rounds, N)], exit(done) end)
                   || N <- lists:seq(1, ?WORKERS)],
        [receive {'DOWN', Monitor, _, _, Reason} -> done = Reason end || {_, Monitor} <- Workers]
    end),
    Killed = counters:get(Kills, 1),
    true = Killed >= Least orelse {only, Killed, killed_of, Least},
    {comment, integer_to_list(Killed) ++ " killed in " ++ integer_to_list(Rounds) ++ " rounds"}.

share(Rounds, N) -> lists:seq(N, Rounds, ?WORKERS).

%% Some time, from none to that of a few host calls.
moment() ->
    case rand:uniform(3) of
        1 -> [erlang:yield() || _ <- lists:seq(1, rand:uniform(20))];
        2 -> spin(rand:uniform(300));
        3 -> rand:uniform(20) =:= 1 andalso timer:sleep(rand:uniform(3))
    end.

spin(Micros) ->
    Until = erlang:monotonic_time(microsecond) + Micros,
    (fun Loop() -> erlang:monotonic_time(microsecond) >= Until orelse Loop() end)().

%% Kills, and counts it if the victim was alive.
kill({Pid, Monitor}, Kills) ->
    exit(Pid, kill),
    receive
        {'DOWN', Monitor, _, _, killed} -> counters:add(Kills, 1, 1);
        {'DOWN', Monitor, _, _, _} -> ok
    end.

%% What a process ended with. One that does not end is stuck.
ended({Pid, Monitor}) ->
    receive {'DOWN', Monitor, _, _, Reason} -> Reason
    after 30_000 -> error({stuck, process_info(Pid, [current_stacktrace, messages])})
    end.

%% Runs in a process of its own, twice: the second time leaves no native object, slot, thread, open
%% file or memory that was not there after the first.
returns(Fun) ->
    wasmtime_test:in_process(Fun),
    Before = left(),
    wasmtime_test:in_process(Fun),
    nothing_more(Before, 20).

nothing_more(Before, Tries) ->
    case more(Before, left()) of
        [] -> ok;
        More when Tries =:= 0 -> error({left_behind, More});
        _ -> timer:sleep(100), nothing_more(Before, Tries - 1)
    end.

left() ->
    Live = wasmtime_test:settled(),
    {Threads, Files} = wasmtime_test:resources(),
    Idle = maps:get(threads_parked, Live),
    {maps:remove(threads_parked, Live), Threads - Idle, Files, bytes()}.

%% What grew: a page here and there is kept, and so are arenas of the allocators.
more({Live, Threads, Files, Bytes}, {LiveAfter, ThreadsAfter, FilesAfter, BytesAfter}) ->
    [{Sort, N, M} || {Sort, M} <- maps:to_list(LiveAfter), N <- [maps:get(Sort, Live)], M > N]
    ++ [{threads, Threads, ThreadsAfter} || ThreadsAfter > Threads + 2]
    ++ [{files, Files, FilesAfter} || FilesAfter > Files + 1]
    ++ [{bytes, Bytes, BytesAfter} || BytesAfter > Bytes + 32 * 1024 * 1024].

%% Memory of this VM that is its own.
bytes() ->
    {ok, Text} = file:read_file("/proc/self/status"),
    {match, [KiB]} = re:run(Text, "RssAnon:\\s+(\\d+) kB", [{capture, [1], list}]),
    list_to_integer(KiB) * 1024.

%% Runs Module:Function(Args) in a VM of its own, after some commands of the shell.
start_node({Module, Function, Args}, Shell) ->
    cached_node:result(cached_node:start({Module, Function, Args}, Shell)).
