%% Guests that play with descriptors, listings, sizes and special files: each game has an answer, the
%% number of open files is bounded, and the next instance has its folders as they were.
-module(hostile_files_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-import(preview1, [with/2, call/3, put/3, get/3, u32/2, u64/2, path/4, open/3, open/5, write/3, read/3]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

suite() -> wasmtime_test:suite().

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), preview1:warm_up(), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

init_per_testcase(_, Config) -> [{alive, preview1:alive()} | Config].

end_per_testcase(_, Config) -> preview1:left_behind(proplists:get_value(alive, Config)).

-define(OUT, 512).
-define(BUFFER, 4096).
-define(DIR, 3).
-define(MAX_OPEN, 256).

folder(Config, Fun) ->
    Dir = wasmtime_test:temp(Config, "dir"),
    wasmtime_test:write(Dir, "file", <<"contents">>),
    with(#{dirs => [{"/d", Dir, write}], stdin => {binary, <<"input">>}, stdout => capture},
         fun(Inst) -> Fun(Inst, Dir) end).

%% ---- descriptors ----------------------------------------------------------------------------

%% Moving descriptors about: onto a folder, a stream, itself, from and to what is not open.
t_renumber(Config) ->
    folder(Config, fun(Inst, Dir) ->
        {ok, File} = open(Inst, ?DIR, <<"file">>, [read, write], []),
        [?assertEqual({From, To, badf}, {From, To, call(Inst, fd_renumber, [From, To])})
         || {From, To} <- [{File, 99}, {99, File}, {99, 99}, {File, -1}, {-1, File}]],
        [?assertEqual(ok, call(Inst, fd_renumber, [Fd, Fd])) || Fd <- [0, 1, ?DIR, File]],
        %% A file in the place of stdout: what is written goes there.
        ?assertEqual(ok, call(Inst, fd_renumber, [File, 1])),
        ?assertEqual(badf, call(Inst, fd_tell, [File, ?OUT])),
        ?assertEqual({ok, 3}, write(Inst, 1, <<"CON">>)),
        ?assertEqual({ok, <<"CONtents">>}, file:read_file(filename:join(Dir, "file"))),
        ?assertEqual({ok, {<<>>, <<>>, {0, 0}}}, wasmtime:read_output(Inst)),
        %% Stdin in the place of the folder: it is a stream there, and no folder.
        ?assertEqual(ok, call(Inst, fd_renumber, [0, ?DIR])),
        ?assertEqual({ok, <<"in">>}, read(Inst, ?DIR, 2)),
        ?assertEqual(badf, call(Inst, fd_prestat_get, [?DIR, ?OUT])),
        ?assertEqual(badf, open(Inst, ?DIR, <<"file">>)),
        ?assertEqual(badf, read(Inst, 0, 2))
    end).

%% The folder in the place of a stream is a folder still, with its rights.
t_renumber_folder(Config) ->
    Dir = wasmtime_test:temp(Config, "dir"),
    wasmtime_test:write(Dir, "file", <<"contents">>),
    with(#{dirs => [{"/r", Dir, read}, {"/w", Dir, write}]}, fun(Inst) ->
        ?assertEqual(ok, call(Inst, fd_renumber, [3, 0])),
        ?assertMatch({ok, _}, open(Inst, 0, <<"file">>)),
        ?assertEqual(perm, open(Inst, 0, <<"file">>, [write], [])),
        %% One folder over the other takes its rights along.
        ?assertEqual(ok, call(Inst, fd_renumber, [0, 4])),
        ?assertEqual(perm, open(Inst, 4, <<"file">>, [write], [trunc])),
        ?assertEqual(badf, call(Inst, fd_prestat_get, [3, ?OUT])),
        ?assertEqual(ok, call(Inst, fd_prestat_get, [4, ?OUT]))
    end),
    ?assertEqual({ok, <<"contents">>}, file:read_file(filename:join(Dir, "file"))).

%% Closing all that was granted, twice: nothing is left to the guest, and all of it to the next one.
t_close_everything(Config) ->
    Games = fun(Inst, _) ->
        [?assertEqual({Fd, ok}, {Fd, call(Inst, fd_close, [Fd])}) || Fd <- [0, 1, 2, ?DIR]],
        [?assertEqual({Fd, badf}, {Fd, call(Inst, fd_close, [Fd])}) || Fd <- [0, 1, 2, ?DIR, -1]],
        ?assertEqual(badf, open(Inst, ?DIR, <<"file">>)),
        ?assertEqual(badf, write(Inst, 1, <<"x">>)),
        ?assertEqual(badf, read(Inst, 0, 1))
    end,
    [folder(Config, fun(Inst, Dir) ->
         {ok, _} = open(Inst, ?DIR, <<"file">>),
         ?assertEqual({ok, <<"input">>}, read(Inst, 0, 9)),
         Games(Inst, Dir)
     end) || _ <- [1, 2]].

%% No more files than there may be, by whatever was done before; each that is closed makes room.
%% Reading and listing with all places taken is an errno too.
t_all_files(Config) ->
    folder(Config, fun(Inst, _) ->
        Open = fun() -> open(Inst, ?DIR, <<"file">>) end,
        [Fd | _] = [begin {ok, Fd} = Open(), Fd end || _ <- lists:seq(1, ?MAX_OPEN)],
        [?assertEqual(mfile, Open()) || _ <- [1, 2]],
        ?assertEqual(mfile, open(Inst, ?DIR, <<".">>, [read], [directory])),
        put(Inst, 0, <<?BUFFER:32/little, 8:32/little>>),
        ?assertEqual(mfile, call(Inst, fd_pread, [Fd, 0, 1, 0, ?OUT])),
        ?assertEqual(mfile, call(Inst, fd_readdir, [?DIR, ?BUFFER, 4096, 0, ?OUT])),
        ?assertEqual({ok, <<"contents">>}, read(Inst, Fd, 8)),
        ?assertEqual(ok, call(Inst, fd_close, [Fd])),
        ?assertEqual(ok, call(Inst, fd_readdir, [?DIR, ?BUFFER, 4096, 0, ?OUT])),
        ?assertMatch({ok, _}, Open()),
        ?assertEqual(mfile, Open())
    end).

%% An out-pointer that is wrong costs the guest a descriptor, not the host more than the limit.
t_lost_descriptors(Config) ->
    folder(Config, fun(Inst, _) ->
        put(Inst, 1024, <<"file">>),
        Lose = fun() -> call(Inst, path_open, [?DIR, 0, 1024, 4, 0, 2, 0, 0, 16#80000000]) end,
        Answers = [Lose() || _ <- lists:seq(1, ?MAX_OPEN + 50)],
        ?assertEqual([mfile, {trap, memory_out_of_bounds}], lists:usort(Answers)),
        {_, Files} = wasmtime_test:resources(),
        ?assert(Files < ?MAX_OPEN + 200)
    end).

%% A file that was removed while it is open goes with the instance, and all that was written with it: on a
%% dirty scheduler. So does any other, and one that is a standard stream; those that were closed are none.
t_removed_while_open(Config) ->
    Open = fun(Inst) -> {ok, Fd} = open(Inst, ?DIR, <<"big">>, [read, write], [creat]), Fd end,
    Remove = fun(Inst) -> ok = path(Inst, path_unlink_file, ?DIR, {<<"big">>, []}) end,
    Close = fun(Inst, Fd) -> ok = call(Inst, fd_close, [Fd]) end,
    Games = [{ok, fun(_) -> ok end},
             {dirty, Open},
             {ok, fun(Inst) -> Close(Inst, Open(Inst)) end},
             {dirty, fun(Inst) -> {ok, 4} = write(Inst, Open(Inst), <<"data">>), Remove(Inst) end},
             {ok, fun(Inst) -> Fd = Open(Inst), Remove(Inst), Close(Inst, Fd) end},
             {dirty, fun(Inst) -> ok = call(Inst, fd_renumber, [Open(Inst), ?DIR]) end},
             {dirty, fun(Inst) -> ok = call(Inst, fd_renumber, [Open(Inst), 1]) end}],
    [begin
         Dir = wasmtime_test:temp(Config, "dir"),
         Inst = preview1:inst(#{dirs => [{"/d", Dir, write}], stdout => capture}),
         Game(Inst),
         ?assertEqual({Game, Answer}, {Game, destroyed_at_once(Inst)}),
         ok = wasmtime:destroy(Inst)
     end || {Answer, Game} <- Games],
    [begin
         Inst = preview1:inst(#{Stream => {file, wasmtime_test:write(wasmtime_test:temp(Config, "s"), "file", <<>>)}}),
         ?assertEqual({Stream, dirty}, {Stream, destroyed_at_once(Inst)}),
         ok = wasmtime:destroy(Inst)
     end || Stream <- [stdin, stdout, stderr]].

%% A thread that still has the guest would be waited for.
destroyed_at_once(Inst) ->
    wasmtime_test:wait_until(fun() -> maps:get(threads_running, wasmtime_nif:live()) =:= 0 end),
    wasmtime_nif:instance_destroy(element(2, Inst)).

%% ---- listings -------------------------------------------------------------------------------

%% Buffers too small for an entry, for its name, and for nothing: cut, never written beyond.
t_tiny_listings(Config) ->
    folder(Config, fun(Inst, _) ->
        ?assertEqual(ok, call(Inst, fd_readdir, [?DIR, ?BUFFER, 4096, 0, ?OUT])),
        Whole = get(Inst, ?BUFFER, u32(Inst, ?OUT)),
        ?assertEqual(3 * 24 + byte_size(<<"...file">>), byte_size(Whole)),
        [begin
             put(Inst, ?BUFFER, binary:copy(<<255>>, 256)),
             ?assertEqual(ok, call(Inst, fd_readdir, [?DIR, ?BUFFER, Size, 0, ?OUT])),
             Used = u32(Inst, ?OUT),
             ?assertEqual(min(Size, byte_size(Whole)), Used),
             ?assertEqual(<<(binary:part(Whole, 0, Used))/binary, 255>>, get(Inst, ?BUFFER, Used + 1))
         end || Size <- lists:seq(0, byte_size(Whole) + 2)]
    end).

%% Cookies that no listing gave: after the last entry there is nothing, and so there is far beyond.
t_bogus_cookies(Config) ->
    folder(Config, fun(Inst, _) ->
        [begin
             ?assertEqual(ok, call(Inst, fd_readdir, [?DIR, ?BUFFER, 4096, Cookie, ?OUT])),
             ?assertEqual({Cookie, Entries}, {Cookie, entries(get(Inst, ?BUFFER, u32(Inst, ?OUT)))})
         end || {Cookie, Entries} <- [{0, [<<".">>, <<"..">>, <<"file">>]}, {1, [<<"..">>, <<"file">>]},
                                      {2, [<<"file">>]}, {3, []}, {4, []}, {1 bsl 32, []},
                                      {(1 bsl 63) - 1, []}, {1 bsl 63, []}, {-1, []}]],
        [?assertEqual({Fd, Answer}, {Fd, call(Inst, fd_readdir, [Fd, ?BUFFER, 4096, 0, ?OUT])})
         || {Fd, Answer} <- [{0, badf}, {1, badf}, {99, badf}, {-1, badf}]],
        {ok, File} = open(Inst, ?DIR, <<"file">>),
        ?assert(lists:member(call(Inst, fd_readdir, [File, ?BUFFER, 9, 0, ?OUT]), [badf, notdir]))
    end).

entries(<<_:128, Length:32/little, _:32, Name:Length/binary, Rest/binary>>) -> [Name | entries(Rest)];
entries(<<>>) -> [].

%% A folder with very many entries, made by the guest, is listed whole, in pieces of any size.
t_many_entries(Config) ->
    folder(Config, fun(Inst, _) ->
        Many = wasmtime_test:rounds(300, 2000, 20_000),
        [begin
             {ok, Fd} = open(Inst, ?DIR, <<"n", (integer_to_binary(I))/binary>>, [write], [creat]),
             ok = call(Inst, fd_close, [Fd])
         end || I <- lists:seq(1, Many)],
        Listed = listed(Inst, 0, 60_000, []),
        ?assertEqual(Many + 3, length(lists:usort(Listed))),
        ?assertEqual(Many + 3, length(Listed))
    end).

listed(Inst, Cookie, Size, Acc) ->
    ok = call(Inst, fd_readdir, [?DIR, ?BUFFER, Size, Cookie, ?OUT]),
    case whole(get(Inst, ?BUFFER, u32(Inst, ?OUT)), Cookie, Acc) of
        {Cookie, Names} -> Names;
        {Next, Names} -> listed(Inst, Next, Size, Names)
    end.

whole(<<Next:64/little, _:64, Length:32/little, _:32, Name:Length/binary, Rest/binary>>, _, Acc) ->
    whole(Rest, Next, [Name | Acc]);
whole(_, Next, Acc) ->
    {Next, Acc}.

%% ---- sizes and places -----------------------------------------------------------------------

%% Sizes, offsets and places at the ends of their types.
t_far_places(Config) ->
    folder(Config, fun(Inst, _) ->
        {ok, Fd} = open(Inst, ?DIR, <<"file">>, [read, write], []),
        put(Inst, 0, <<?BUFFER:32/little, 4:32/little>>),
        Max = (1 bsl 63) - 1,
        [?assertEqual({Call, Answer}, {Call, call(Inst, Name, Args)})
         || {{Name, Args} = Call, Answer} <-
                [{{fd_filestat_set_size, [Fd, 1 bsl 63]}, inval}, {{fd_filestat_set_size, [Fd, -1]}, inval},
                 {{fd_filestat_set_size, [Fd, Max]}, fbig},
                 {{fd_pread, [Fd, 0, 1, Max, ?OUT]}, inval}, {{fd_pread, [Fd, 0, 1, -1, ?OUT]}, inval},
                 {{fd_pwrite, [Fd, 0, 1, -1, ?OUT]}, inval},
                 {{fd_seek, [Fd, -1, 0, ?OUT]}, inval}, {{fd_seek, [Fd, -1, 1, ?OUT]}, inval},
                 {{fd_seek, [Fd, -9, 2, ?OUT]}, inval}, {{fd_seek, [Fd, -(1 bsl 63), 2, ?OUT]}, inval},
                 {{fd_seek, [Fd, Max, 0, ?OUT]}, ok}, {{fd_seek, [Fd, Max, 1, ?OUT]}, ok},
                 {{fd_seek, [Fd, Max, 1, ?OUT]}, inval}, {{fd_allocate, [Fd, -1, -1]}, notsup},
                 {{fd_seek, [0, 0, 0, ?OUT]}, spipe}, {{fd_seek, [?DIR, 0, 0, ?OUT]}, badf},
                 {{fd_advise, [Fd, -1, -1, 0]}, inval}, {{fd_advise, [?DIR, 0, 0, 0]}, badf}]],
        %% The place is now beyond what a file can have.
        ?assertEqual(inval, call(Inst, fd_read, [Fd, 0, 1, ?OUT])),
        ?assertEqual(inval, call(Inst, fd_write, [Fd, 0, 1, ?OUT])),
        ?assertEqual(ok, call(Inst, fd_seek, [Fd, 0, 0, ?OUT])),
        ?assertEqual({ok, <<"contents">>}, read(Inst, Fd, 100))
    end).

%% A file of a tebibyte without contents costs nothing; a read of it is as long as its buffer.
t_sparse_file(Config) ->
    folder(Config, fun(Inst, Dir) ->
        {ok, Fd} = open(Inst, ?DIR, <<"file">>, [read, write], []),
        ?assertEqual(ok, call(Inst, fd_filestat_set_size, [Fd, 1 bsl 40])),
        ?assertEqual(ok, call(Inst, fd_filestat_get, [Fd, 1024])),
        ?assertEqual(1 bsl 40, u64(Inst, 1024 + 32)),
        ?assertEqual(ok, call(Inst, fd_seek, [Fd, -10, 2, ?OUT])),
        ?assertEqual({ok, <<0:80>>}, read(Inst, Fd, 100)),
        ?assertEqual({ok, <<>>}, read(Inst, Fd, 100)),
        ?assertEqual(ok, call(Inst, fd_filestat_set_size, [Fd, 4])),
        ?assertEqual({ok, <<"cont">>}, file:read_file(filename:join(Dir, "file")))
    end).

%% Times at the ends of their type do not confuse the host, nor the next look at the file.
t_far_times(Config) ->
    folder(Config, fun(Inst, _) ->
        put(Inst, 1024, <<"file">>),
        [begin
             Set = call(Inst, path_filestat_set_times, [?DIR, 0, 1024, 4, Time, Time, 5]),
             ?assert(lists:member(Set, [ok, inval, overflow]), {Time, Set}),
             Look = call(Inst, path_filestat_get, [?DIR, 0, 1024, 4, 2048]),
             ?assert(lists:member(Look, [ok, overflow]), {Time, Look})
         end || Time <- [0, 1, -1, 1 bsl 63, (1 bsl 63) - 1, 1 bsl 62]]
    end).

%% The same for a file that the host dated before 1970.
t_old_file(Config) ->
    folder(Config, fun(Inst, Dir) ->
        ok = file:change_time(filename:join(Dir, "file"), {{1960, 1, 1}, {0, 0, 0}}),
        put(Inst, 1024, <<"file">>),
        Look = call(Inst, path_filestat_get, [?DIR, 0, 1024, 4, 2048]),
        ?assert(lists:member(Look, [ok, overflow]), Look),
        ?assertEqual(ok, call(Inst, fd_readdir, [?DIR, ?BUFFER, 4096, 0, ?OUT]))
    end).

%% ---- special files --------------------------------------------------------------------------

%% Pipes and sockets in a folder are listed and not opened: neither can hold the guest's thread.
t_special_files(Config) ->
    folder(Config, fun(Inst, Dir) ->
        Fifo = filename:join(Dir, "fifo"),
        "" = os:cmd("mkfifo " ++ Fifo),
        ok = file:make_symlink("fifo", filename:join(Dir, "link")),
        %% A short name: the paths of sockets are limited.
        {ok, Socket} = gen_udp:open(0, [local, {ifaddr, {local, short("/tmp/hostile", Dir)}}]),
        try
            ok = file:rename(short("/tmp/hostile", Dir), filename:join(Dir, "socket")),
            [?assertEqual({Path, Rights, notsup}, {Path, Rights, open(Inst, ?DIR, Path, Rights, Flags)})
             || Path <- [<<"fifo">>, <<"link">>, <<"socket">>], Rights <- [[read], [write], [read, write]],
                Flags <- [[], [creat], [trunc]]],
            ?assertEqual(ok, call(Inst, fd_readdir, [?DIR, ?BUFFER, 4096, 0, ?OUT])),
            ?assertEqual([<<".">>, <<"..">>, <<"fifo">>, <<"file">>, <<"link">>, <<"socket">>],
                         lists:sort(entries(get(Inst, ?BUFFER, u32(Inst, ?OUT))))),
            ?assertEqual(ok, path(Inst, path_filestat_get, [?DIR, 0], {<<"socket">>, [2048]}))
        after
            gen_udp:close(Socket)
        end
    end).

short(Prefix, Dir) -> Prefix ++ integer_to_list(erlang:phash2({Dir, self()})).
