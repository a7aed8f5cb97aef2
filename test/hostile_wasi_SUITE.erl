%% Guests that attack through the arguments of WASI: pointers, lists of buffers, sleeps, descriptors,
%% numbers out of range. Each attack has one answer; the instance and the VM go on, and nothing is
%% left behind.
-module(hostile_wasi_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("wasmtime/include/wasmtime.hrl").
-import(preview1, [with/2, call/3, put/3, get/3, u32/2, open/5, read/3]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

suite() -> wasmtime_test:suite().

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), preview1:warm_up(), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

init_per_testcase(_, Config) -> [{alive, preview1:alive()} | Config].

end_per_testcase(_, Config) -> preview1:left_behind(proplists:get_value(alive, Config)).

-define(MEMORY, (preview1:memory_end())).
-define(OUT, 512).
-define(BUFFER, 4096).
-define(YEAR, (365 * 24 * 3600 * 1_000_000_000)).

%% ---- pointers -------------------------------------------------------------------------------

%% Every pointer of every function: what ends with the memory works, what ends one byte later, begins
%% at the end, or wraps around is a trap of the guest, and never an error of this library.
t_pointers(Config) ->
    Dir = wasmtime_test:temp(Config, "dir"),
    wasmtime_test:write(Dir, "file", <<"contents">>),
    ok = file:make_symlink("file", filename:join(Dir, "link")),
    Options = #{args => ["abc"], env => [{"K", "v"}], dirs => [{"/d", Dir, write}],
                stdin => {binary, binary:copy(<<"i">>, 1 bsl 20)}},
    with(Options, fun(Inst) ->
        {ok, File} = open(Inst, 3, <<"file">>, [read, write], []),
        [pointer(Inst, Attack) || Attack <- pointers(File)],
        ?assertEqual(ok, call(Inst, sched_yield, []))
    end).

%% The same pointer at each place around the end of the memory. The size is what the function reads or
%% writes there.
pointer(Inst, {Name, Size, Args}) ->
    Try = fun(P) ->
        put(Inst, 0, <<?BUFFER:32/little, 8:32/little>>),
        put(Inst, 1024, <<"file">>),
        put(Inst, 1032, <<"link">>),
        put(Inst, 2048, clock(1, 1, 0, 0)),
        call(Inst, Name, [case A of p -> P; _ -> A end || A <- Args])
    end,
    _ = Try(?MEMORY - Size),
    Fits = Try(?MEMORY - Size),
    ?assert(not is_tuple(Fits), {Name, Args, fits, Fits}),
    [?assertEqual({Name, Args, P, {trap, memory_out_of_bounds}}, {Name, Args, P, Try(P)})
     || P <- [?MEMORY, 16#80000000]],
    %% Some want their pointers aligned, and look at that first.
    [?assert(lists:member(Try(P), [{trap, memory_out_of_bounds}, {trap, heap_misaligned}]),
             {Name, Args, P})
     || P <- [?MEMORY - Size + 1, 16#FFFFFFFF]].

pointers(File) ->
    [{args_get, 4, [p, 1024]}, {args_get, 4, [1024, p]},
     {args_sizes_get, 4, [p, ?OUT]}, {args_sizes_get, 4, [?OUT, p]},
     {environ_get, 4, [p, 1024]}, {environ_get, 4, [1024, p]},
     {environ_sizes_get, 4, [p, ?OUT]}, {environ_sizes_get, 4, [?OUT, p]},
     {clock_res_get, 8, [1, p]}, {clock_time_get, 8, [1, 0, p]}, {clock_time_get, 8, [0, 0, p]},
     {fd_fdstat_get, 24, [3, p]}, {fd_filestat_get, 64, [3, p]}, {fd_filestat_get, 64, [0, p]},
     {fd_prestat_get, 8, [3, p]}, {fd_prestat_dir_name, 2, [3, p, 2]},
     {fd_pread, 8, [File, p, 1, 0, ?OUT]}, {fd_pread, 4, [File, 0, 1, 0, p]},
     {fd_pwrite, 8, [File, p, 1, 0, ?OUT]}, {fd_pwrite, 4, [File, 0, 1, 0, p]},
     {fd_read, 8, [File, p, 1, ?OUT]}, {fd_read, 4, [File, 0, 1, p]}, {fd_read, 8, [0, p, 1, ?OUT]},
     {fd_write, 8, [File, p, 1, ?OUT]}, {fd_write, 4, [1, 0, 1, p]}, {fd_write, 16, [1, p, 2, ?OUT]},
     {fd_readdir, 100, [3, p, 100, 0, ?OUT]}, {fd_readdir, 4, [3, ?BUFFER, 100, 0, p]},
     {fd_seek, 8, [File, 0, 0, p]}, {fd_tell, 8, [File, p]},
     {path_create_directory, 4, [3, p, 4]}, {path_filestat_get, 4, [3, 0, p, 4, ?OUT]},
     {path_filestat_get, 64, [3, 0, 1024, 4, p]}, {path_filestat_set_times, 4, [3, 0, p, 4, 0, 0, 0]},
     {path_link, 4, [3, 0, p, 4, 3, 1024, 4]}, {path_link, 4, [3, 0, 1024, 4, 3, p, 4]},
     {path_open, 4, [3, 0, p, 4, 0, 2, 0, 0, ?OUT]}, {path_open, 4, [3, 0, 1024, 4, 0, 2, 0, 0, p]},
     {path_readlink, 4, [3, p, 4, ?BUFFER, 9, ?OUT]}, {path_readlink, 4, [3, 1032, 4, p, 4, ?OUT]},
     {path_readlink, 4, [3, 1032, 4, ?BUFFER, 9, p]}, {path_remove_directory, 4, [3, p, 4]},
     {path_rename, 4, [3, p, 4, 3, 1024, 4]}, {path_rename, 4, [3, 1024, 4, 3, p, 4]},
     {path_symlink, 4, [p, 4, 3, 1024, 4]}, {path_symlink, 4, [1024, 4, 3, p, 4]},
     {path_unlink_file, 4, [3, p, 4]},
     {poll_oneoff, 48, [p, ?BUFFER, 1, ?OUT]}, {poll_oneoff, 32, [2048, p, 1, ?OUT]},
     {poll_oneoff, 4, [2048, ?BUFFER, 1, p]}, {random_get, 100, [p, 100]}].

%% A guest with a memory that it does not export has nothing that WASI could work on.
t_no_memory(_) ->
    wasmtime_test:with_inst(import_wasi_no_memory, #{wasi => #{}}, fun(Inst) ->
        [?assertMatch(?WASMTIME_ERROR(memory, unknown_export),
                      wasmtime:call(Inst, Name, []))
         || Name <- ["sizes", "random"]]
    end).

%% Choices and flags that do not exist are traps of their own kind.
t_unknown_flags(Config) ->
    Dir = wasmtime_test:temp(Config, "dir"),
    wasmtime_test:write(Dir, "file", <<"contents">>),
    with(#{dirs => [{"/d", Dir, write}]}, fun(Inst) ->
        put(Inst, 1024, <<"file">>),
        {ok, File} = open(Inst, 3, <<"file">>, [read, write], []),
        [?assertEqual({Call, {trap, invalid_argument}}, {Call, call(Inst, Name, Args)})
         || {Name, Args} = Call <-
                [{fd_seek, [File, 0, 3, ?OUT]}, {fd_seek, [File, 0, -1, ?OUT]},
                 {fd_advise, [File, 0, 0, 6]}, {fd_fdstat_set_flags, [File, 32]},
                 {fd_filestat_set_times, [File, 0, 0, 16]}, {proc_raise, [31]},
                 {path_open, [3, 2, 1024, 4, 0, 2, 0, 0, ?OUT]},
                 {path_open, [3, 0, 1024, 4, 16, 2, 0, 0, ?OUT]},
                 {path_open, [3, 0, 1024, 4, 0, -1, 0, 0, ?OUT]},
                 {path_open, [3, 0, 1024, 4, 0, 2, 0, 32, ?OUT]},
                 {sock_shutdown, [File, 4]}, {sock_recv, [File, 0, 1, 4, ?OUT, ?OUT + 4]}]],
        [?assertEqual({Call, inval}, {Call, call(Inst, Name, Args)})
         || {Name, Args} = Call <- [{fd_filestat_set_times, [File, 0, 0, 3]},
                                    {fd_filestat_set_times, [File, 0, 0, 12]}]],
        ?assertEqual(notsup, call(Inst, proc_raise, [9]))
    end).

%% ---- lists of buffers -----------------------------------------------------------------------

iovecs(Inst, At, List) ->
    put(Inst, At, << <<P:32/little, L:32/little>> || {P, L} <- List >>).

%% More buffers, and larger ones, than any memory holds: an errno or a trap, before a byte is copied.
t_huge_buffers(_) ->
    with(#{stdout => capture, stdin => {binary, binary:copy(<<"x">>, 1000)}}, fun(Inst) ->
        [?assertEqual({Fd, Count, nomem}, {Fd, Count, call(Inst, Name, [Fd, 0, Count, ?OUT])})
         || {Name, Fd} <- [{fd_write, 1}, {fd_read, 0}],
            Count <- [16#FFFFFFFF, 16#80000000, 16#20000000, 16#1FFFFFFF]],
        TooMuch = [{?BUFFER, 16#FFFFFFFF}, {?BUFFER, 16#80000000}],
        Beyond = [{0, ?MEMORY + 1}, {?BUFFER, ?MEMORY}, {16#FFFFFFF0, 100}],
        [begin
             iovecs(Inst, 0, [Iovec]),
             ?assertEqual({Name, Iovec, Answer}, {Name, Iovec, call(Inst, Name, [Fd, 0, 1, ?OUT])})
         end || {Name, Fd, Answer, Iovecs} <- [{fd_write, 1, nomem, TooMuch},
                                               {fd_read, 0, nomem, TooMuch},
                                               {fd_write, 1, {trap, memory_out_of_bounds}, Beyond}],
                Iovec <- Iovecs],
        ?assertEqual({ok, {<<>>, <<>>, {0, 0}}}, wasmtime:read_output(Inst)),
        ?assertEqual({ok, <<"xxx">>}, read(Inst, 0, 3)),
        %% A read looks at its buffer when there is something to put there.
        iovecs(Inst, 0, [{?MEMORY - 10, 100}]),
        ?assertEqual({trap, memory_out_of_bounds}, call(Inst, fd_read, [0, 0, 1, ?OUT])),
        ?assertEqual(<<0:80>>, get(Inst, ?MEMORY - 10, 10))
    end).

%% Lengths whose sum is beyond 32 bits: the first buffer is served, as a short write; each buffer
%% covers all of the memory, and the others overlap it.
t_overlapping_buffers(_) ->
    with(#{stdout => capture, output_limit => 10}, fun(Inst) ->
        iovecs(Inst, 0, lists:duplicate(20_000, {0, ?MEMORY})),
        ?assertEqual(ok, call(Inst, fd_write, [1, 0, 20_000, ?OUT])),
        ?assertEqual(?MEMORY, u32(Inst, ?OUT)),
        Beyond = ?MEMORY - 10,
        ?assertMatch({ok, {<<_:10/binary>>, <<>>, {Beyond, 0}}}, wasmtime:read_output(Inst))
    end).

%% Thousands of empty buffers, alone and in front of one with bytes.
t_empty_buffers(_) ->
    with(#{stdout => capture, stdin => {binary, <<"input">>}}, fun(Inst) ->
        iovecs(Inst, 65536, lists:duplicate(20_000, {16#FFFFFFFF, 0})),
        ?assertEqual(ok, call(Inst, fd_write, [1, 65536, 20_000, ?OUT])),
        ?assertEqual(0, u32(Inst, ?OUT)),
        ?assertEqual(ok, call(Inst, fd_write, [1, 65536, 0, ?OUT])),
        put(Inst, ?BUFFER, <<"output">>),
        iovecs(Inst, 65536 + 8 * 19_999, [{?BUFFER, 6}]),
        ?assertEqual(ok, call(Inst, fd_write, [1, 65536, 20_000, ?OUT])),
        ?assertEqual({ok, {<<"output">>, <<>>, {0, 0}}}, wasmtime:read_output(Inst)),
        ?assertEqual(ok, call(Inst, fd_read, [0, 65536, 20_000, ?OUT])),
        ?assertEqual(<<"input">>, get(Inst, ?BUFFER, u32(Inst, ?OUT)))
    end).

%% A read whose buffer is its own list of buffers, or where the number of bytes goes.
t_read_over_its_arguments(_) ->
    with(#{stdin => {binary, binary:copy(<<"z">>, 64)}}, fun(Inst) ->
        iovecs(Inst, 0, [{0, 8}, {0, 8}]),
        ?assertEqual(ok, call(Inst, fd_read, [0, 0, 2, ?OUT])),
        ?assertEqual({<<"zzzzzzzz">>, 8}, {get(Inst, 0, 8), u32(Inst, ?OUT)}),
        iovecs(Inst, 0, [{?OUT, 8}]),
        ?assertEqual(ok, call(Inst, fd_read, [0, 0, 1, ?OUT])),
        ?assertEqual(<<8:32/little, "zzzz">>, get(Inst, ?OUT, 8))
    end).

%% Writing all of a large memory to a captured stream keeps what the limit allows, and a deadline
%% ends it on the way.
t_huge_write(_) ->
    with(#{stdout => capture, output_limit => 1000}, fun(Inst) ->
        Pages = 3000,
        {ok, [4]} = wasmtime:call(Inst, <<"grow">>, [Pages]),
        Bytes = 100 * 1024 * 1024,
        iovecs(Inst, 0, [{0, Bytes}]),
        ?assertEqual(ok, call(Inst, fd_write, [1, 0, 1, ?OUT])),
        Beyond = Bytes - 1000,
        ?assertMatch({ok, {<<_:1000/binary>>, <<>>, {Beyond, 0}}}, wasmtime:read_output(Inst)),
        ?assertEqual({trap, timeout},
                     preview1:call(Inst, fd_write, [1, 0, 1, ?OUT], #{timeout => 0})),
        ?assertEqual(ok, call(Inst, sched_yield, []))
    end).

%% ---- sleeps ---------------------------------------------------------------------------------

%% A clock subscription; Flags is 1 for an absolute time.
clock(Userdata, Clock, Nanos, Flags) ->
    <<Userdata:64/little, 0, 0:56, Clock:32/little, 0:32, Nanos:64/little, 0:64, Flags:16/little, 0:48>>.

%% A sleep of a year, or of for ever, ends with the call's time, with an interrupt, with its caller
%% and with the instance.
t_year_long_sleep(_) ->
    [begin
         Sleep = fun(Inst, Opts) ->
             put(Inst, 2048, [clock(I, 1, Nanos + I, Flags) || I <- lists:seq(0, Count - 1)]),
             preview1:call(Inst, poll_oneoff, [2048, 131072, Count, ?OUT], Opts)
         end,
         slept(Sleep)
     end || Count <- [1, 1000],
            {Nanos, Flags} <- [{?YEAR, 0}, {16#FFFFFFFFFFFF0000, 0}, {16#FFFFFFFFFFFF0000, 1}]].

slept(Sleep) ->
    with(#{}, fun(Inst) ->
        ?assertEqual({trap, timeout}, Sleep(Inst, #{timeout => 20})),
        asleep(Inst, Sleep, fun(Pid) ->
            ok = wasmtime:interrupt(Inst),
            receive {Pid, Answer} -> ?assertEqual({trap, interrupt}, Answer) end
        end),
        asleep(Inst, Sleep, fun(Pid) -> exit(Pid, kill) end),
        ?assertEqual(ok, call(Inst, sched_yield, [])),
        asleep(Inst, Sleep, fun(Pid) ->
            ok = wasmtime:destroy(Inst),
            receive {Pid, Answer} -> ?assertEqual({call, destroyed}, Answer) end
        end)
    end).

asleep(Inst, Sleep, Fun) ->
    {Pid, Monitor} = wasmtime_test:caller(fun() -> Sleep(Inst, #{}) end),
    wasmtime_test:calling(Pid),
    Fun(Pid),
    receive {'DOWN', Monitor, process, Pid, _} -> ok end.

%% No subscription, and more than there may be, are an errno; a number that no memory holds as well.
t_how_many_subscriptions(_) ->
    with(#{}, fun(Inst) ->
        put(Inst, 2048, [clock(I, 1, 0, 0) || I <- lists:seq(1, 1024)]),
        [?assertEqual({N, inval}, {N, call(Inst, poll_oneoff, [2048, 131072, N, ?OUT])})
         || N <- [0, 1025, 100_000, 16#80000000, 16#FFFFFFFF]],
        ?assertEqual(ok, call(Inst, poll_oneoff, [2048, 131072, 1024, ?OUT])),
        ?assertEqual(1024, u32(Inst, ?OUT))
    end).

%% The same subscription many times is an event each time.
t_duplicated_subscriptions(_) ->
    with(#{}, fun(Inst) ->
        put(Inst, 2048, lists:duplicate(500, clock(7, 1, 0, 0))),
        ?assertEqual(ok, call(Inst, poll_oneoff, [2048, 131072, 500, ?OUT])),
        ?assertEqual(500, u32(Inst, ?OUT)),
        Events = get(Inst, 131072, 500 * 32),
        ?assertEqual(lists:duplicate(500, {7, 0}),
                     [{U, E} || <<U:64/little, E:16/little, _:22/binary>> <= Events])
    end).

%% Events that are written over the subscriptions, and a count over the events: the answer is that of
%% separate places, with the later one on top.
t_overlapping_subscriptions(_) ->
    with(#{}, fun(Inst) ->
        List = [clock(1, 1, 0, 0), clock(2, 1, ?YEAR, 0), clock(3, 1, 0, 0)],
        [begin
             put(Inst, 2048, List),
             ?assertEqual(ok, call(Inst, poll_oneoff, [2048, Events, 3, ?OUT])),
             ?assertEqual(2, u32(Inst, ?OUT)),
             ?assertMatch(<<1:64/little, _:24/binary, 3:64/little, _:24/binary>>, get(Inst, Events, 64))
         end || Events <- [2048, 2049, 2040, 2096, 1984, 2191]],
        put(Inst, 2048, List),
        ?assertEqual(ok, call(Inst, poll_oneoff, [2048, 4096, 3, 4096])),
        ?assertMatch(<<2:32/little, 0:32, _/binary>>, get(Inst, 4096, 64))
    end).

%% Unknown clocks, unknown kinds and descriptors that are not open are events with an errno, at once.
t_nonsense_subscriptions(_) ->
    with(#{}, fun(Inst) ->
        Fd = fun(Userdata, Tag, Fd) -> <<Userdata:64/little, Tag, 0:56, Fd:32/little, 0:224>> end,
        put(Inst, 2048, [clock(1, 4, ?YEAR, 0), clock(2, 16#FFFFFFFF, ?YEAR, 1), Fd(3, 1, 99),
                         Fd(4, 2, 16#FFFFFFFF), Fd(5, 255, 0), clock(6, 1, ?YEAR, 0)]),
        ?assertEqual(ok, call(Inst, poll_oneoff, [2048, 4096, 6, ?OUT])),
        Events = get(Inst, 4096, 32 * u32(Inst, ?OUT)),
        ?assertEqual([{1, 28}, {2, 28}, {3, 8}, {4, 8}, {5, 28}],
                     [{U, E} || <<U:64/little, E:16/little, _:22/binary>> <= Events])
    end).

%% ---- gigabytes ------------------------------------------------------------------------------

%% Randomness: as much as there is memory, no byte more, and a deadline ends it on the way.
t_much_randomness(_) ->
    with(#{}, fun(Inst) ->
        [?assertEqual({At, Length, {trap, memory_out_of_bounds}},
                      {At, Length, call(Inst, random_get, [At, Length])})
         || {At, Length} <- [{0, 16#FFFFFFFF}, {0, 16#80000000}, {0, ?MEMORY + 1}, {1, ?MEMORY},
                             {16#FFFFFFFF, 1}, {16#FFFFFFFF, 16#FFFFFFFF}]],
        ?assertEqual(binary:copy(<<0>>, 4096), get(Inst, 0, 4096)),
        ?assertEqual(ok, call(Inst, random_get, [0, ?MEMORY])),
        ?assertEqual(ok, call(Inst, random_get, [?MEMORY, 0])),
        {ok, [4]} = wasmtime:call(Inst, <<"grow">>, [4092]),
        ?assertEqual({trap, timeout},
                     preview1:call(Inst, random_get, [0, 4096 * 65536 - 1], #{timeout => 20})),
        ?assertEqual(ok, call(Inst, sched_yield, []))
    end).

%% Arguments and variables larger than the guest's memory: it learns the size, and cannot have them.
t_huge_arguments(_) ->
    Bytes = wasmtime_test:rounds(4, 64, 2048) * 1024 * 1024,
    Huge = binary:copy(<<"a">>, Bytes),
    with(#{args => [Huge, "b"], env => [{"K", Huge}]}, fun(Inst) ->
        ?assertEqual(ok, call(Inst, args_sizes_get, [0, 4])),
        ?assertEqual({2, Bytes + 3}, {u32(Inst, 0), u32(Inst, 4)}),
        ?assertEqual({trap, memory_out_of_bounds}, call(Inst, args_get, [0, 65536])),
        ?assertEqual(ok, call(Inst, environ_sizes_get, [0, 4])),
        ?assertEqual({1, Bytes + 3}, {u32(Inst, 0), u32(Inst, 4)}),
        ?assertEqual({trap, memory_out_of_bounds}, call(Inst, environ_get, [0, 65536]))
    end).

%% ---- numbers out of range -------------------------------------------------------------------

%% The CPU clocks are not there, and no other clock is: errnos, and the guest's memory stays.
t_clock_ids(_) ->
    Answers = fun(Clocks, Others) ->
        with(#{clocks => Clocks}, fun(Inst) ->
            put(Inst, ?OUT, <<-1:64>>),
            [begin
                 ?assertEqual({Id, Answer}, {Id, call(Inst, clock_time_get, [Id, 0, ?OUT])}),
                 ?assertEqual({Id, Answer}, {Id, call(Inst, clock_res_get, [Id, ?OUT])}),
                 ?assertEqual(<<-1:64>>, get(Inst, ?OUT, 8))
             end || {Id, Answer} <- Others]
        end)
    end,
    Answers(all, [{2, badf}, {3, badf}, {4, inval}, {5, inval}, {16#7FFFFFFF, inval}, {-1, inval}]),
    Answers(monotonic, [{Id, notcapable} || Id <- [0, 2, 3, 4, 16#7FFFFFFF, -1]]).

%% Every status reaches the host as it is, also those that an operating system would cut to 8 bits:
%% 256 is no success.
t_exit_codes(_) ->
    with(#{}, fun(Inst) ->
        ?assertEqual(ok, call(Inst, proc_exit, [0])),
        [?assertEqual({exit, Status}, call(Inst, proc_exit, [Status]))
         || Status <- lists:seq(1, 255) ++ [256, 512, 65536, 16#7FFFFFFF, -1, -256, -16#80000000]],
        ?assertEqual({exit, -16#80000000}, call(Inst, proc_exit, [16#80000000])),
        ?assertEqual(ok, call(Inst, sched_yield, []))
    end).

%% There are no sockets: not the standard streams, not a directory, not what is closed.
t_no_sockets(_) ->
    with(#{}, fun(Inst) ->
        put(Inst, 0, <<?BUFFER:32/little, 8:32/little>>),
        [begin
             ?assertEqual(Answer, call(Inst, sock_accept, [Fd, 0, ?OUT])),
             ?assertEqual(Answer, call(Inst, sock_recv, [Fd, 0, 1, 0, ?OUT, ?OUT + 4])),
             ?assertEqual(Answer, call(Inst, sock_send, [Fd, 0, 1, 0, ?OUT])),
             ?assertEqual(Answer, call(Inst, sock_shutdown, [Fd, 3]))
         end || {Fd, Answer} <- [{0, notsock}, {2, notsock}, {3, badf}, {-1, badf}]]
    end).
