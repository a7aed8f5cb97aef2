%% Guests that try to leave their folders, or to change what they may only read: by dots, absolute
%% paths, links, renames, slashes, and races. What is outside stays unread and as it was.
-module(hostile_paths_SUITE).
-compile([export_all, nowarn_export_all]).
-include_lib("stdlib/include/assert.hrl").
-include_lib("kernel/include/file.hrl").
-import(preview1, [call/3, put/3, path/4, paths/4, open/3, open/5, read/3]).

all() -> wasmtime_test:both().

groups() -> wasmtime_test:both(?MODULE).

suite() -> wasmtime_test:suite().

init_per_group(Runner, Config) -> wasmtime_test:use(Runner), preview1:warm_up(), Config.

end_per_group(_, _) -> wasmtime_test:use(thread).

init_per_testcase(_, Config) -> [{alive, preview1:alive()} | Config].

end_per_testcase(_, Config) -> preview1:left_behind(proplists:get_value(alive, Config)).

-define(OUT, 512).
%% The guest's folders: one to read, one to write.
-define(R, 3).
-define(W, 4).

%% Two folders with the same contents inside one with a secret. Afterwards the secret, and all of the
%% folder to read, are what they were.
with(Config, Fun) ->
    Outer = wasmtime_test:temp(Config, "outer"),
    wasmtime_test:write(Outer, "secret", <<"secret">>),
    [R, W] = [folder(Outer, Name) || Name <- ["r", "w"]],
    Before = {tree(R), tree(Outer, ["secret"])},
    Dirs = [{"/r", R, read}, {"/w", W, write}],
    Result = preview1:with(#{dirs => Dirs}, fun(Inst) -> Fun(Inst, Outer) end),
    ?assertEqual(Before, {tree(R), tree(Outer, ["secret"])}),
    {ok, Names} = file:list_dir(Outer),
    ?assertEqual(["r", "secret", "w"], lists:sort(Names)),
    Result.

folder(Outer, Name) ->
    Dir = filename:join(Outer, Name),
    ok = filelib:ensure_dir(filename:join([Dir, "sub", "x"])),
    wasmtime_test:write(Dir, "file", <<"contents">>),
    Links = [{"link", "file"}, {"dirlink", "sub"}, {"up", ".."}, {"relative", "../secret"},
             {"absolute", filename:join(Outer, "secret")}, {"root", "/"}, {"self", "self"},
             {"one", "two"}, {"two", "one"}, {"hop0", "file"}],
    Chain = [{"hop" ++ integer_to_list(I), "hop" ++ integer_to_list(I - 1)} || I <- lists:seq(1, 60)],
    [ok = file:make_symlink(To, filename:join(Dir, From)) || {From, To} <- Links ++ Chain],
    Dir.

%% Names, kinds, contents, sizes and times.
tree(Dir) ->
    {ok, Names} = file:list_dir(Dir),
    tree(Dir, lists:sort(Names)).

tree(Dir, Names) ->
    [begin
         Path = filename:join(Dir, Name),
         {ok, #file_info{type = Type, size = Size, mtime = Time, links = Links}} =
             file:read_link_info(Path),
         {Name, Type, Size, Time, Links, file:read_link(Path), content(Type, Path)}
     end || Name <- Names].

content(regular, Path) -> file:read_file(Path);
content(_, _) -> none.

answers(Inst, Dir, List) ->
    [?assertEqual({Dir, Path, Answer}, {Dir, Path, open(Inst, Dir, Path)}) || {Path, Answer} <- List].

%% ---- paths ----------------------------------------------------------------------------------

%% No way out: not by dots, not from the root, not through a link, wherever it leads. The same paths
%% are refused to every function.
t_traversal(Config) ->
    with(Config, fun(Inst, Outer) ->
        Out = [<<"..">>, <<"../">>, <<"../secret">>, <<"sub/../../secret">>, <<"sub/../..">>,
               <<"/">>, <<"//">>, <<"/etc/passwd">>, <<"absolute">>, <<"relative">>, <<"up">>,
               <<"up/secret">>, <<"dirlink/../../secret">>, <<"root/etc/passwd">>, <<"./up/.">>,
               list_to_binary(filename:join(Outer, "secret"))],
        [begin
             answers(Inst, Dir, [{Path, perm} || Path <- Out]),
             [?assertEqual({Path, perm}, {Path, path(Inst, path_filestat_get, [Dir, 1], {Path, [0]})})
              || Path <- Out],
             [?assertEqual({Path, perm}, {Path, path(Inst, path_filestat_set_times, [Dir, 1],
                                                     {Path, [0, 0, 5]})})
              || Path <- Out]
         end || Dir <- [?R, ?W]],
        [?assert(lists:member(Answer, [perm, inval, exist, isdir, notdir]), {Name, Path, Answer})
         || Path <- [<<"../secret">>, <<"up/secret">>, <<"/secret">>, <<"../new">>, <<"up/new">>,
                     <<"..">>, <<"sub/../../new">>],
            {Name, Rest} <- [{path_unlink_file, []}, {path_remove_directory, []},
                             {path_create_directory, []}, {path_readlink, [0, 9, ?OUT]}],
            Answer <- [path(Inst, Name, ?W, {Path, Rest})]],
        [?assertEqual({From, To, perm}, {From, To, paths(Inst, Name, Fd, {?W, To})})
         || {From, To} <- [{<<"../secret">>, <<"x">>}, {<<"up/secret">>, <<"x">>},
                           {<<"file">>, <<"../x">>}, {<<"file">>, <<"up/x">>},
                           {<<"file">>, <<"/x">>}, {<<"file">>, <<"root/tmp/x">>}],
            {Name, Fd} <- [{path_rename, {?W, From}}, {path_link, {[?W, 0], From}}]]
    end).

%% What stays inside works, however it is written.
t_inside(Config) ->
    with(Config, fun(Inst, _) ->
        [?assertMatch({Path, {ok, _}}, {Path, open(Inst, Dir, Path)})
         || Dir <- [?R, ?W],
            Path <- [<<"file">>, <<"./file">>, <<"sub/../file">>, <<"sub//..//file">>, <<"link">>,
                     <<"dirlink/../file">>, <<".">>, <<"sub/.">>, <<"hop38">>]]
    end).

%% Names that no file can have.
t_names(Config) ->
    with(Config, fun(Inst, _) ->
        Long = fun(Text, N) -> binary:copy(Text, N) end,
        answers(Inst, ?W, [{<<>>, noent}, {<<0>>, inval}, {<<"file", 0>>, inval},
                           {<<"fi", 0, "le">>, inval}, {<<"file", 0, "/../../secret">>, inval},
                           {<<255, 254>>, ilseq}, {<<"fil", 16#C3>>, ilseq},
                           {<<"..\\secret">>, noent}, {Long(<<"a">>, 255), noent},
                           {Long(<<"a">>, 256), nametoolong}, {Long(<<"a">>, 60_000), nametoolong},
                           {Long(<<"a/">>, 30_000), nametoolong},
                           {Long(<<"sub/../">>, 9_000), nametoolong}]),
        [?assertEqual({Name, nametoolong}, {Name, path(Inst, Name, Fd, {Long(<<"a">>, 256), Rest})})
         || {Name, Fd, Rest} <- [{path_create_directory, ?W, []}, {path_unlink_file, ?W, []},
                                 {path_remove_directory, ?W, []}, {path_readlink, ?W, [0, 9, ?OUT]},
                                 {path_filestat_get, [?W, 0], [0]}]]
    end).

%% Chains of links end where the system's end, and links in a ring at once.
t_link_chains(Config) ->
    with(Config, fun(Inst, _) ->
        [answers(Inst, Dir, [{<<"hop45">>, loop}, {<<"hop60">>, loop}, {<<"self">>, loop},
                             {<<"one">>, loop}, {<<"one/file">>, loop}])
         || Dir <- [?R, ?W]],
        [?assertEqual({Path, loop}, {Path, open(Inst, ?W, Path, [read], [nofollow])})
         || Path <- [<<"link">>, <<"absolute">>, <<"self">>, <<"dirlink">>]]
    end).

%% A guest can make links that lead out, and no function follows them.
t_own_links(Config) ->
    with(Config, fun(Inst, Outer) ->
        ?assertEqual(perm, paths(Inst, path_symlink, <<"/etc/passwd">>, {?W, <<"s">>})),
        ?assertEqual(ok, paths(Inst, path_symlink, <<"../secret">>, {?W, <<"out">>})),
        ?assertEqual(ok, paths(Inst, path_symlink, <<"../../..">>, {?W, <<"sub/far">>})),
        ?assertEqual(ok, paths(Inst, path_link, {[?W, 0], <<"absolute">>}, {?W, <<"hard">>})),
        [?assertEqual({Path, perm}, {Path, Answer})
         || Path <- [<<"out">>, <<"sub/far/etc">>, <<"hard">>],
            Answer <- [open(Inst, ?W, Path), open(Inst, ?W, Path, [read, write], [creat, trunc]),
                       path(Inst, path_filestat_get, [?W, 1], {Path, [0]}),
                       path(Inst, path_filestat_set_times, [?W, 1], {Path, [0, 0, 5]})]],
        %% Following the source of a hard link is refused as a whole.
        ?assertEqual(inval, paths(Inst, path_link, {[?W, 1], <<"out">>}, {?W, <<"new">>})),
        ?assertEqual(perm, paths(Inst, path_rename, {?W, <<"file">>}, {?W, <<"sub/far/file">>})),
        ?assertEqual(noent, paths(Inst, path_symlink, <<>>, {?W, <<"s">>})),
        ?assertEqual(inval, paths(Inst, path_symlink, <<"a", 0>>, {?W, <<"s">>})),
        ?assertEqual(exist, paths(Inst, path_symlink, <<"x">>, {?W, <<"file">>})),
        %% Removing or renaming a link works on the link.
        ?assertEqual(ok, paths(Inst, path_rename, {?W, <<"out">>}, {?W, <<"sub/out">>})),
        ?assertEqual(ok, path(Inst, path_unlink_file, ?W, {<<"sub/out">>, []})),
        ?assertEqual({ok, <<"secret">>}, file:read_file(filename:join(Outer, "secret")))
    end).

%% A slash at the end asks for a directory: none is made, opened, renamed or removed by mistake.
t_trailing_slashes(Config) ->
    with(Config, fun(Inst, _) ->
        [answers(Inst, Dir, [{<<"file/">>, notdir}, {<<"link/">>, notdir}, {<<"file/.">>, notdir},
                             {<<"file/..">>, notdir}, {<<"up/">>, perm}, {<<"absolute/">>, perm}])
         || Dir <- [?R, ?W]],
        [?assertMatch({ok, _}, open(Inst, Dir, Path))
         || Dir <- [?R, ?W], Path <- [<<"sub/">>, <<"sub//">>, <<"dirlink/">>]],
        ?assertEqual(isdir, open(Inst, ?W, <<"new/">>, [read, write], [creat])),
        ?assertEqual(notdir, path(Inst, path_unlink_file, ?W, {<<"file/">>, []})),
        ?assertEqual(notdir, path(Inst, path_remove_directory, ?W, {<<"dirlink">>, []})),
        ?assertEqual(inval, path(Inst, path_remove_directory, ?W, {<<"dirlink/">>, []})),
        ?assertEqual(isdir, path(Inst, path_unlink_file, ?W, {<<"dirlink/">>, []})),
        ?assertEqual(notdir, paths(Inst, path_rename, {?W, <<"file/">>}, {?W, <<"new">>})),
        ?assertEqual(notdir, paths(Inst, path_rename, {?W, <<"file">>}, {?W, <<"new/">>})),
        ?assertEqual(noent, paths(Inst, path_symlink, <<"sub">>, {?W, <<"new/">>})),
        ?assertEqual(noent, open(Inst, ?W, <<"new">>)),
        ?assertEqual(ok, paths(Inst, path_rename, {?W, <<"sub/">>}, {?W, <<"moved/">>})),
        ?assertMatch({ok, _}, open(Inst, ?W, <<"moved">>)),
        ?assertEqual(perm, path(Inst, path_create_directory, ?R, {<<"new/">>, []})),
        ?assertEqual(ok, path(Inst, path_create_directory, ?W, {<<"new/">>, []}))
    end).

%% A folder is not removed from inside, nor moved into itself.
t_self_renames(Config) ->
    with(Config, fun(Inst, _) ->
        ?assertEqual(inval, path(Inst, path_remove_directory, ?W, {<<".">>, []})),
        ?assertEqual(perm, path(Inst, path_remove_directory, ?W, {<<"..">>, []})),
        ?assertEqual(notempty, begin
            path(Inst, path_create_directory, ?W, {<<"sub/deep">>, []}),
            path(Inst, path_remove_directory, ?W, {<<"sub">>, []})
        end),
        ?assertEqual(inval, paths(Inst, path_rename, {?W, <<"sub">>}, {?W, <<"sub/deep/x">>})),
        [?assert(is_atom(Answer) andalso Answer =/= ok orelse element(1, Answer) =:= errno, Answer)
         || Answer <- [paths(Inst, path_rename, {?W, <<".">>}, {?W, <<"x">>}),
                       paths(Inst, path_rename, {?W, <<"sub">>}, {?W, <<".">>}),
                       paths(Inst, path_rename, {?W, <<"file">>}, {?W, <<"sub">>})]],
        ?assertEqual(ok, paths(Inst, path_rename, {?W, <<"file">>}, {?W, <<"file">>})),
        ?assertMatch({ok, _}, open(Inst, ?W, <<"file">>))
    end).

%% ---- two folders ----------------------------------------------------------------------------

%% Nothing moves, and no hard link leads, out of a folder to read or into it; such a link would make
%% its file writable. Opened subfolders are no way around.
t_across_folders(Config) ->
    with(Config, fun(Inst, _) ->
        {ok, ReadSub} = open(Inst, ?R, <<"sub">>, [read], [directory]),
        {ok, WriteSub} = open(Inst, ?W, <<"sub">>, [read], [directory]),
        Pairs = [{{?R, <<"file">>}, {W, <<"new">>}} || W <- [?W, WriteSub]]
             ++ [{{?W, <<"file">>}, {R, <<"new">>}} || R <- [?R, ReadSub]]
             ++ [{{?W, <<"file">>}, {?R, <<"file">>}}, {{?R, <<"file">>}, {?W, <<"file">>}},
                 {{?R, <<"sub">>}, {?W, <<"new">>}}, {{?W, <<"sub">>}, {?R, <<"new">>}},
                 {{?R, <<"link">>}, {?W, <<"new">>}}, {{?R, <<"file">>}, {?R, <<"new">>}}],
        [begin
             ?assertEqual({From, To, perm}, {From, To, paths(Inst, path_rename, From, To)}),
             ?assertEqual({From, To, perm}, {From, To, paths(Inst, path_link, {[Fd, 0], Path}, To)})
         end || {{Fd, Path} = From, To} <- Pairs],
        %% Between two folders to write it works.
        ?assertEqual(ok, paths(Inst, path_link, {[?W, 0], <<"file">>}, {WriteSub, <<"hard">>})),
        ?assertEqual(ok, paths(Inst, path_rename, {?W, <<"file">>}, {WriteSub, <<"moved">>})),
        ?assertMatch({ok, _}, open(Inst, ?W, <<"sub/moved">>))
    end).

%% No truncation, by no function and no way: flags, sizes, allocations, times, through links and
%% through descriptors that were opened to be read.
t_read_only(Config) ->
    with(Config, fun(Inst, _) ->
        Opens = [{Rights, Flags} || Rights <- [[], [read], [write], [read, write]],
                                    Flags <- [[trunc], [creat], [creat, trunc], [creat, excl], []],
                                    Flags =/= [] orelse lists:member(write, Rights)],
        [?assertEqual({Path, Rights, Flags, perm},
                      {Path, Rights, Flags, open(Inst, ?R, Path, Rights, Flags)})
         || {Rights, Flags} <- Opens, Path <- [<<"file">>, <<"link">>, <<"hop3">>, <<"sub/../file">>]],
        [begin
             {ok, Fd} = open(Inst, ?R, Path, [read], Flags),
             put(Inst, 0, <<0:32, 8:32/little>>),
             [?assertEqual({Name, Args, Answer}, {Name, Args, call(Inst, Name, [Fd | Args])})
              || {Name, Args, Answer} <- [{fd_filestat_set_size, [0], perm},
                                          {fd_filestat_set_size, [1 bsl 40], perm},
                                          {fd_allocate, [0, 1 bsl 40], notsup},
                                          {fd_filestat_set_times, [0, 0, 5], perm},
                                          {fd_filestat_set_times, [0, 0, 10], perm},
                                          {fd_write, [0, 1, ?OUT], badf},
                                          {fd_pwrite, [0, 1, 0, ?OUT], badf},
                                          {fd_fdstat_set_rights, [64, 64], notsup}]],
             ?assertEqual(ok, call(Inst, fd_fdstat_set_flags, [Fd, 1])),
             ?assertEqual(badf, call(Inst, fd_write, [Fd, 0, 1, ?OUT])),
             ?assertEqual({ok, <<"contents">>}, read(Inst, Fd, 100))
         end || {Path, Flags} <- [{<<"file">>, []}, {<<"link">>, []}, {<<"file">>, [append]}]],
        [?assertEqual({Follow, Path, perm},
                      {Follow, Path, path(Inst, path_filestat_set_times, [?R, Follow],
                                          {Path, [0, 0, Now]})})
         || Follow <- [0, 1], Now <- [5, 10], Path <- [<<"file">>, <<"link">>, <<"sub">>, <<".">>]],
        [?assertEqual({Name, perm}, {Name, path(Inst, Name, ?R, {Path, []})})
         || {Name, Path} <- [{path_unlink_file, <<"file">>}, {path_unlink_file, <<"link">>},
                             {path_remove_directory, <<"sub">>}, {path_create_directory, <<"new">>}]],
        ?assertEqual(perm, paths(Inst, path_symlink, <<"file">>, {?R, <<"new">>})),
        ?assertEqual(perm, call(Inst, fd_filestat_set_times, [?R, 0, 0, 5]))
    end).

%% ---- races ----------------------------------------------------------------------------------

%% A directory and a link that leads out change places all the time while the guest goes through that
%% name. It meets the directory, or is refused; it never reads, makes, moves or removes a file outside.
t_race(Config) ->
    with(Config, fun(Inst, Outer) ->
        W = filename:join(Outer, "w"),
        Swap = filename:join(W, "swap"),
        ok = file:make_dir(Swap),
        wasmtime_test:write(Swap, "secret", <<"inside">>),
        ok = file:make_symlink("..", filename:join(W, "swap_out")),
        Swapper = spawn_link(fun() -> swap(W) end),
        Rounds = wasmtime_test:rounds(1500, 10_000, 300_000),
        Seen = raced(Inst, Rounds, 30, []),
        unlink(Swapper),
        exit(Swapper, kill),
        ?assertEqual([inside, perm], lists:sort([S || S <- Seen, S =:= inside orelse S =:= perm])),
        ?assertEqual([], Seen -- [inside, perm, noent, exist, notdir, ok, notempty, loop])
    end).

%% What was met; again and again until it was both.
raced(Inst, Rounds, Tries, Before) ->
    Seen = lists:umerge(Before, lists:usort([raced(Inst, I) || I <- lists:seq(1, Rounds)])),
    case [inside, perm] -- Seen of
        [_ | _] when Tries > 1 -> raced(Inst, Rounds, Tries - 1, Seen);
        _ -> Seen
    end.

%% Moves both aside and back: `swap' is the directory, the link, or not there.
swap(W) ->
    Rename = fun(From, To) -> ok = file:rename(filename:join(W, From), filename:join(W, To)) end,
    Rename("swap", "swap_in"),
    Rename("swap_out", "swap"),
    Rename("swap", "swap_out"),
    Rename("swap_in", "swap"),
    swap(W).

raced(Inst, I) ->
    case I rem 5 of
        0 -> path(Inst, path_unlink_file, ?W, {<<"swap/new">>, []});
        1 -> path(Inst, path_create_directory, ?W, {<<"swap/dir">>, []});
        2 -> path(Inst, path_remove_directory, ?W, {<<"swap/dir">>, []});
        3 -> read_raced(Inst, open(Inst, ?W, <<"swap/secret">>));
        4 -> close(Inst, open(Inst, ?W, <<"swap/new">>, [write], [creat, trunc]))
    end.

read_raced(Inst, {ok, Fd}) ->
    {ok, Data} = read(Inst, Fd, 100),
    ok = call(Inst, fd_close, [Fd]),
    binary_to_atom(Data);
read_raced(_, Answer) ->
    Answer.

close(Inst, {ok, Fd}) -> call(Inst, fd_close, [Fd]);
close(_, Answer) -> Answer.
